package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"

	"golang.org/x/term"

	"github.com/kv8s/curl-me-that/deploy/local/launch"
)

// exitError is the exit status of the command, which has reported its error itself.
type exitError int

func (s exitError) Error() string { return fmt.Sprintf("exit status %d", int(s)) }

// runChild runs the command with more variables than ours, passes signals on, and
// returns an exitError when it fails.
func runChild(ctx context.Context, args, env []string) error {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, os.Interrupt, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGUSR1,
		syscall.SIGUSR2)
	defer signal.Stop(signals)
	// To Linux, the child's parent is the thread that starts it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	child := exec.Command(args[0], args[1:]...)
	child.Env = append(os.Environ(), env...)
	child.Stdin, child.Stdout, child.Stderr = os.Stdin, os.Stdout, os.Stderr
	child.SysProcAttr = &syscall.SysProcAttr{}
	// Its cluster ends, too, if we are killed.
	launch.DieWithParent(child.SysProcAttr, syscall.SIGTERM)
	if err := child.Start(); err != nil {
		return fmt.Errorf("run the command: %w", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- child.Wait() }()
	for {
		select {
		case received := <-signals:
			if !typed(received) {
				// An error means that the child has ended.
				_ = child.Process.Signal(received)
			}
		case err := <-ended:
			return asStatus(err)
		}
	}
}

// typed reports whether a signal is one of the keyboard. The terminal sends them to the child as
// well as to us, and two of them would make many a program exit without cleaning up.
func typed(received os.Signal) bool {
	fromKeyboard := received == os.Interrupt || received == syscall.SIGQUIT
	return fromKeyboard && term.IsTerminal(int(os.Stdin.Fd()))
}

// asStatus follows the shell: a signal n becomes 128+n.
func asStatus(err error) error {
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return err
	}
	if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return exitError(128 + int(status.Signal()))
	}
	return exitError(exit.ExitCode())
}
