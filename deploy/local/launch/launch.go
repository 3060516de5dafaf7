// Package launch starts programs that end with the process that started them, on
// Linux even when that is killed.
package launch

import (
	"os/exec"
	"runtime"
)

// Process is a command that was started.
type Process struct {
	cmd    *exec.Cmd
	exited chan struct{}
	err    error
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
	p.err = p.cmd.Wait()
	close(p.exited)
}

// Exited is closed once the process has ended.
func (p *Process) Exited() <-chan struct{} { return p.exited }

// Err is the error of the wait for the end, valid once Exited is closed.
func (p *Process) Err() error { return p.err }
