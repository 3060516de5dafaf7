// Package process runs programs under test as processes of the operating
// system: it starts, stops and kills them, keeps their logs, finds addresses for
// them and asks for their health.
package process

import (
	"os/exec"

	"github.com/kv8s/curl-me-that/deploy/local/launch"
)

// Program describes a process to start.
type Program struct {
	// Name of the process, for people.
	Name string
	// Path of the executable file.
	Path string
	// Args behind it.
	Args []string
	// Env is the whole environment. Nothing is inherited, so the shell cannot influence a
	// test.
	Env []string
}

// Process is a program that was started, and may have been started again.
type Process struct {
	*launch.Process
	// Args behind the program.
	Args []string
	// Log has the output of all starts.
	Log *Log
}

// Start runs a program.
func Start(p Program) (*Process, error) {
	log := &Log{}
	cmd := exec.Command(p.Path, p.Args...)
	cmd.Env = append([]string{}, p.Env...)
	cmd.Stdout, cmd.Stderr = log, log
	started, err := launch.Start(p.Name, cmd)
	return &Process{Process: started, Args: p.Args, Log: log}, err
}
