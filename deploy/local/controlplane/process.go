package controlplane

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sync/atomic"
	"syscall"
)

// program is what to run.
type program struct {
	name string
	path string
	args []string
	dir  string
	log  string
}

// process is a program that was started.
type process struct {
	program
	cmd *exec.Cmd
	// logStart is where the output of this process begins in its log.
	logStart int64
	// asked is true when the process is meant to end.
	asked  atomic.Bool
	exited chan struct{}
	err    error // of Wait; valid once exited is closed
}

// start runs the program with its output appended to its log.
func (p program) start() (*process, error) {
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open log of %s: %w", p.name, err)
	}
	defer log.Close()
	end, err := log.Seek(0, 2)
	if err != nil {
		return nil, fmt.Errorf("find end of the log of %s: %w", p.name, err)
	}
	cmd := exec.Command(p.path, p.args...)
	cmd.Dir = p.dir
	// An empty environment: ETCD_… variables and proxies of the shell are not for us.
	cmd.Env = []string{}
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = processAttributes()
	running := &process{program: p, cmd: cmd, logStart: end, exited: make(chan struct{})}
	started := make(chan error)
	go running.run(started)
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", p.name, err)
	}
	return running, nil
}

// run keeps one thread for the life of the process: Linux sends the signal that
// ends orphans when the parent's thread ends, not its process.
func (p *process) run(started chan<- error) {
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

// failure describes a process that has ended, with the last line of its log.
func (p *process) failure() error {
	status := "status 0"
	if p.err != nil {
		status = p.err.Error()
	}
	return fmt.Errorf("%s %w (%s): %s", p.name, ErrExited, status, lastLine(p.log, p.logStart))
}

// stop asks the process to end and waits until it has. It kills when ctx ends first.
func (p *process) stop(ctx context.Context) error {
	p.asked.Store(true)
	// An error means that the process has ended already.
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.exited:
		return nil
	case <-ctx.Done():
		p.kill()
		return fmt.Errorf("stop %s: killed, since it was still running: %w", p.name, context.Cause(ctx))
	}
}

// kill ends the process at once and waits until it is gone.
func (p *process) kill() {
	p.asked.Store(true)
	_ = p.cmd.Process.Kill()
	<-p.exited
}
