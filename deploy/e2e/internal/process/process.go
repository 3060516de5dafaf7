// Package process runs the programs under test. It starts, stops and kills them, keeps their logs, finds ports
// for them and checks their health.
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
	// Name of the process in messages.
	Name string
	// Path of the executable file.
	Path string
	// Args of the program.
	Args []string
	// Health is a URL that responds with 200 when the process is ready.
	Health string
	// Env is the whole environment. Nothing is inherited, so the shell cannot influence a test.
	Env []string
}

// Process is a program that was started, perhaps several times.
type Process struct {
	*launch.Process
	// Args of the program.
	Args []string
	// Log has the output of all runs.
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

// Ended returns nil while the process runs, and then an error with its last line.
func (p *Process) Ended() error {
	if p.Running() {
		return nil
	}
	return fmt.Errorf("%s has ended, its last line: %s", p.Name, p.Log.Last())
}

// Ready returns nil if the process is ready, or an error with its response.
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
