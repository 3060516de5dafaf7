// Package process runs programs under test as processes of the operating
// system: it starts, stops and kills them, keeps their logs, finds addresses for
// them and asks for their health.
package process

import (
	"context"
	"fmt"
	"net/http"
	"os/exec"
	"strings"

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
	// Health is the URL that responds with 200 when it is ready.
	Health string
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

	health string
}

// Start runs a program.
func Start(p Program) (*Process, error) {
	log := &Log{}
	cmd := exec.Command(p.Path, p.Args...)
	cmd.Env = append([]string{}, p.Env...)
	cmd.Stdout, cmd.Stderr = log, log
	started, err := launch.Start(p.Name, cmd)
	return &Process{Process: started, Args: p.Args, Log: log, health: p.Health}, err
}

// Ended is nil while the process runs, and else an error with its last line.
func (p *Process) Ended() error {
	if p.Running() {
		return nil
	}
	return fmt.Errorf("%s has ended, its last line: %s", p.Name, p.Log.Last())
}

// Ready returns nil when the process is ready, and else its answer.
func (p *Process) Ready(ctx context.Context) error {
	if err := p.Ended(); err != nil {
		return err
	}
	body, code, err := Get(ctx, p.health)
	if err == nil && code != http.StatusOK {
		err = fmt.Errorf("not ready: %s", strings.TrimSpace(body))
	}
	return err
}
