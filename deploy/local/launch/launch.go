// Package launch starts programs that end with the process that started them, on
// Linux even when that is killed.
package launch

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
)

// Process is a command that was started. Its methods may be called from several goroutines.
type Process struct {
	cmd    *exec.Cmd
	exited chan struct{}
}

// Start starts a command in a new process group.
func Start(cmd *exec.Cmd) (*Process, error) {
	cmd.SysProcAttr = attributes()
	p := &Process{cmd: cmd, exited: make(chan struct{})}
	started := make(chan error)
	go p.run(started)
	if err := <-started; err != nil {
		return nil, err
	}
	return p, nil
}

// run occupies one thread for the life of the process: Linux sends the signal that
// ends orphans when the parent's thread ends, not its process.
func (p *Process) run(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := p.cmd.Start()
	started <- err
	if err != nil {
		return
	}
	_ = p.cmd.Wait() // State has the result
	close(p.exited)
}

// PID of the process.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Exited is closed once the process has ended.
func (p *Process) Exited() <-chan struct{} { return p.exited }

// Running reports whether the process has not ended.
func (p *Process) Running() bool {
	select {
	case <-p.exited:
		return false
	default:
		return true
	}
}

// State describes the end of the process, once Exited is closed.
func (p *Process) State() *os.ProcessState { return p.cmd.ProcessState }

// Signal sends a signal. It fails if the process has ended.
func (p *Process) Signal(s os.Signal) error { return p.cmd.Process.Signal(s) }

// Kill ends the process at once and waits until it is gone.
func (p *Process) Kill() {
	_ = p.Signal(syscall.SIGKILL) // it may have ended
	<-p.exited
}

// Stop ends the process with SIGTERM. If ctx ends first, it kills the process, which is the error.
func (p *Process) Stop(ctx context.Context) error {
	_ = p.Signal(syscall.SIGTERM) // it may have ended
	return p.Wait(ctx)
}

// Wait waits for the end of the process. If ctx ends first, it kills the process, which is the error.
func (p *Process) Wait(ctx context.Context) error {
	select {
	case <-p.exited:
		return nil
	case <-ctx.Done():
		p.Kill()
		return fmt.Errorf("killed because it was still running: %w", context.Cause(ctx))
	}
}
