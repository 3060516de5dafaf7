// Package launch starts programs that end with the process that started them. On Linux, they end even if that
// process is killed.
package launch

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sync/atomic"
	"syscall"
)

// Process is a command that can be started again after it has ended. Its methods may be called from several
// goroutines.
type Process struct {
	// Name names the process in errors.
	Name string

	last atomic.Pointer[run]
}

// run is one start of a command.
type run struct {
	cmd    *exec.Cmd
	exited chan struct{}
}

// Start starts a command in a new process group.
func Start(name string, cmd *exec.Cmd) (*Process, error) {
	p := &Process{Name: name}
	return p, p.start(cmd)
}

// Again starts the same command after it has ended.
func (p *Process) Again() error {
	if p.Running() {
		return fmt.Errorf("start %s: it is running", p.Name)
	}
	was := p.last.Load().cmd
	return p.start(&exec.Cmd{
		Path: was.Path, Args: was.Args, Dir: was.Dir, Env: was.Env, Stdout: was.Stdout, Stderr: was.Stderr,
	})
}

func (p *Process) start(cmd *exec.Cmd) error {
	// A group of its own shields the process from Ctrl-C on the terminal, because the parent stops its
	// children in order.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	DieWithParent(cmd.SysProcAttr, syscall.SIGKILL)
	r := &run{cmd: cmd, exited: make(chan struct{})}
	started := make(chan error)
	go r.run(started)
	if err := <-started; err != nil {
		return fmt.Errorf("start %s: %w", p.Name, err)
	}
	p.last.Store(r)
	return nil
}

// run occupies one thread for the life of the process, because Linux sends the signal that ends orphans when
// the parent's thread ends, not its process.
func (r *run) run(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := r.cmd.Start()
	started <- err
	if err != nil {
		return
	}
	_ = r.cmd.Wait() // ProcessState has the result
	close(r.exited)
}

// PID returns the process ID.
func (p *Process) PID() int { return p.last.Load().cmd.Process.Pid }

// Exited returns a channel that is closed once the process has ended.
func (p *Process) Exited() <-chan struct{} { return p.last.Load().exited }

// Running reports whether the process has not ended.
func (p *Process) Running() bool {
	select {
	case <-p.Exited():
		return false
	default:
		return true
	}
}

// State describes how the process ended. It is nil until Exited is closed.
func (p *Process) State() *os.ProcessState { return p.last.Load().cmd.ProcessState }

// Signal sends a signal and does not wait. It fails if the process has ended.
func (p *Process) Signal(s os.Signal) error {
	if err := p.last.Load().cmd.Process.Signal(s); err != nil {
		return fmt.Errorf("signal %s: %w", p.Name, err)
	}
	return nil
}

// Kill ends the process with SIGKILL and waits until it has ended.
func (p *Process) Kill() error {
	err := p.Signal(syscall.SIGKILL)
	<-p.Exited()
	return err
}

// Stop ends the process with SIGTERM and returns its exit code. If ctx ends first, it kills the process and returns an
// error.
func (p *Process) Stop(ctx context.Context) (code int, err error) {
	if err := p.Signal(syscall.SIGTERM); err != nil {
		return 0, err
	}
	return p.Wait(ctx)
}

// Wait waits for the end of the process and returns its exit code, which is -1 after a signal that it did not handle.
// If ctx ends first, it kills the process and returns an error.
func (p *Process) Wait(ctx context.Context) (code int, err error) {
	select {
	case <-p.Exited():
		return p.State().ExitCode(), nil
	case <-ctx.Done():
		_ = p.Kill() // it may have ended
		return -1, fmt.Errorf("stop %s: killed because it was still running: %w", p.Name, context.Cause(ctx))
	}
}
