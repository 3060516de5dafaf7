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

// exitError is the exit status of the command, which has already reported its error.
type exitError int

func (s exitError) Error() string { return fmt.Sprintf("exit status %d", int(s)) }

// runChild runs the command with additional environment variables and forwards signals. It returns an exitError
// if the command fails.
func runChild(ctx context.Context, args, env []string) error {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, os.Interrupt, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGUSR1,
		syscall.SIGUSR2)
	defer signal.Stop(signals)
	// For Linux, the parent of the child is the thread that starts it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	child := exec.Command(args[0], args[1:]...)
	child.Env = append(os.Environ(), env...)
	child.Stdin, child.Stdout, child.Stderr = os.Stdin, os.Stdout, os.Stderr
	child.SysProcAttr = &syscall.SysProcAttr{}
	// If we are killed, the cluster ends, so the child must end too.
	launch.DieWithParent(child.SysProcAttr, syscall.SIGTERM)
	if err := child.Start(); err != nil {
		return fmt.Errorf("run the command: %w", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- child.Wait() }()
	for {
		select {
		case received := <-signals:
			if !fromTerminal(received) {
				// An error means that the child has ended.
				_ = child.Process.Signal(received)
			}
		case err := <-ended:
			return asStatus(err)
		}
	}
}

// fromTerminal reports whether a signal comes from the keyboard. The terminal sends it to the child as well, and
// many programs exit without cleaning up if they receive it twice.
func fromTerminal(received os.Signal) bool {
	keyboard := received == os.Interrupt || received == syscall.SIGQUIT
	return keyboard && term.IsTerminal(int(os.Stdin.Fd()))
}

// asStatus returns the exit status of a failed command. Like in a shell, signal n becomes 128+n.
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
