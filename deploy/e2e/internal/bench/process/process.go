// Package process runs the programs that the benchmark measures, each as a
// process of its own, and tells what they use.
package process

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"time"
)

// stopTimeout is longer than a service takes to drain.
const stopTimeout = 30 * time.Second

// Options say what to run.
type Options struct {
	// Name for messages and for the file with the log.
	Name string
	// Path of the program, and its arguments.
	Path string
	Args []string
	// LogDir is the folder for what the program writes to its standard output
	// and error.
	LogDir string
}

// Process is a running program.
type Process struct {
	name   string
	log    string
	cmd    *exec.Cmd
	exited chan struct{}
}

// Start runs a program until Stop, or until it ends by itself.
func Start(o Options) (*Process, error) {
	log, err := os.OpenFile(filepath.Join(o.LogDir, o.Name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", o.Name, err)
	}
	defer log.Close()
	p := &Process{name: o.Name, log: log.Name(), exited: make(chan struct{})}
	p.cmd = exec.Command(o.Path, o.Args...)
	p.cmd.Stdout, p.cmd.Stderr = log, log
	p.cmd.SysProcAttr = attributes()
	started := make(chan error)
	go p.run(started)
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", o.Name, err)
	}
	return p, nil
}

// run keeps its thread as long as the program runs: in the eyes of Linux that
// thread is the parent, with which the program ends.
func (p *Process) run(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := p.cmd.Start()
	started <- err
	if err != nil {
		return
	}
	_ = p.cmd.Wait() // how it ended is in ProcessState
	close(p.exited)
}

// Name returns the name that the process was started with.
func (p *Process) Name() string { return p.name }

// Exited is closed when the program has ended.
func (p *Process) Exited() <-chan struct{} { return p.exited }

// Err says that the program has ended; nil while it runs.
func (p *Process) Err() error {
	select {
	case <-p.exited:
		return fmt.Errorf("%s ended with %s; its last words: %s", p.name, p.cmd.ProcessState, p.lastWords())
	default:
		return nil
	}
}

// Stop asks the program to end, and kills it when it does not.
func (p *Process) Stop() error {
	if p == nil {
		return nil
	}
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop %s: %w", p.name, err)
	}
	late := time.NewTimer(stopTimeout)
	defer late.Stop()
	select {
	case <-p.exited:
		return nil
	case <-late.C:
		_ = p.cmd.Process.Kill()
		<-p.exited
		return fmt.Errorf("stop %s: not gone after %s", p.name, stopTimeout)
	}
}
