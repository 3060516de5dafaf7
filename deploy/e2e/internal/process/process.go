// Package process runs programs under test as processes of the operating
// system: it starts, stops and kills them, keeps their logs, finds addresses for
// them and asks for their health.
package process

import (
	"context"
	"fmt"
	"os/exec"
	"sync"
	"syscall"

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

// Process is a program that was started, and may have been started again. Its
// methods may be called from several goroutines.
type Process struct {
	// Name of the process, for people, and the arguments behind the program.
	Name string
	Args []string
	// Log has the output of all starts.
	Log *Log

	program Program
	mu      sync.Mutex
	run     *launch.Process
}

// Start runs a program.
func Start(p Program) (*Process, error) {
	started := &Process{Name: p.Name, Args: p.Args, Log: &Log{}, program: p}
	return started, started.Again()
}

// Again runs the program with the same arguments after it has ended.
func (p *Process) Again() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.run != nil && p.run.Running() {
		return fmt.Errorf("start %s: it is running", p.Name)
	}
	cmd := exec.Command(p.program.Path, p.Args...)
	cmd.Env = append([]string{}, p.program.Env...)
	cmd.Stdout, cmd.Stderr = p.Log, p.Log
	started, err := launch.Start(cmd)
	if err != nil {
		return fmt.Errorf("start %s: %w", p.Name, err)
	}
	p.run = started
	return nil
}

// Signal sends a signal and does not wait.
func (p *Process) Signal(s syscall.Signal) error {
	if err := p.current().Signal(s); err != nil {
		return fmt.Errorf("signal %s: %w", p.Name, err)
	}
	return nil
}

// Kill ends the process as kill -9 does and waits until it is gone.
func (p *Process) Kill() error {
	if err := p.Signal(syscall.SIGKILL); err != nil {
		return err
	}
	<-p.current().Exited()
	return nil
}

// Stop ends the process with SIGTERM and returns its exit code. When ctx ends
// first, the process is killed, which is the error.
func (p *Process) Stop(ctx context.Context) (code int, err error) {
	if err := p.Signal(syscall.SIGTERM); err != nil {
		return 0, err
	}
	return p.Wait(ctx)
}

// Wait waits for the end of the process and returns its exit code, which is -1
// after a signal that it did not handle. When ctx ends first, the process is
// killed, which is the error.
func (p *Process) Wait(ctx context.Context) (code int, err error) {
	r := p.current()
	if err := r.Wait(ctx); err != nil {
		return -1, fmt.Errorf("wait for the end of %s: %w", p.Name, err)
	}
	return r.State().ExitCode(), nil
}

// Running reports whether the process runs.
func (p *Process) Running() bool { return p.current().Running() }

// PID of the process.
func (p *Process) PID() int { return p.current().PID() }

func (p *Process) current() *launch.Process {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.run
}
