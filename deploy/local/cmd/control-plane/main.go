// Command control-plane runs another command with a Kubernetes API server: that of KUBECONFIG, or a temporary
// one. Its other subcommands set up the API server of docker compose.
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
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kv8s/curl-me-that/deploy/local/controlplane"
	"github.com/kv8s/curl-me-that/deploy/local/launch"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), ending()...)
	defer stop()
	root := &cobra.Command{
		Use:           "control-plane",
		Short:         "Run a real etcd and kube-apiserver on this machine, or give programs access to a cluster",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddCommand(newExec(), newPrepare(), newGrant(), newHealthcheck())
	err := root.ExecuteContext(ctx)
	if status, ok := errors.AsType[exitError](err); ok {
		os.Exit(int(status)) //nolint:gocritic // nothing is left to stop
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "control-plane:", err)
		os.Exit(1)
	}
}

// ending returns the signals that end the command. A command of nohup goes on when the terminal is closed. Without
// SIGPIPE, a reader of the output that ends would leave the temporary folder.
func ending() []os.Signal {
	signals := []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGPIPE}
	if !signal.Ignored(syscall.SIGHUP) {
		signals = append(signals, syscall.SIGHUP)
	}
	return signals
}

// command returns a subcommand without arguments.
func command(use, short, long string, run func(*cobra.Command) error) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, Long: long, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return run(cmd) },
	}
}

// stopTimeout limits an orderly shutdown, which takes 4 s on an idle machine.
const stopTimeout = 30 * time.Second

func newExec() *cobra.Command {
	var dataDir string
	command := &cobra.Command{
		Use:   "exec [--data-dir DIR] -- COMMAND [ARGUMENT...]",
		Short: "Run a command with the cluster of KUBECONFIG, or with a temporary control plane",
		Long: `Run a command with the cluster of KUBECONFIG. If KUBECONFIG is not set, start a control
plane that runs as long as the command, and set KUBECONFIG and KUBEBUILDER_ASSETS for the
command. Exits with the status of the command.`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if os.Getenv(clientcmd.RecommendedConfigPathEnvVar) != "" {
				return runChild(cmd.Context(), args, nil)
			}
			return runWithControlPlane(cmd.Context(), dataDir, args)
		},
	}
	command.Flags().StringVar(&dataDir, "data-dir", "",
		"folder that keeps the control plane's data (default: a temporary one)")
	// Flags after the name of the command belong to the command.
	command.Flags().SetInterspersed(false)
	return command
}

func runWithControlPlane(ctx context.Context, dataDir string, args []string) error {
	plane, err := controlplane.Start(ctx, controlplane.Options{Dir: dataDir, Progress: os.Stderr})
	if err != nil {
		return err
	}
	ended := make(chan struct{})
	go reportFailure(plane, ended)
	err = runChild(ctx, args, []string{
		clientcmd.RecommendedConfigPathEnvVar + "=" + plane.Kubeconfig(),
		controlplane.EnvDir + "=" + plane.Assets(),
	})
	close(ended)
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	if err := plane.Stop(stopping); err != nil {
		// Only printed, because the command decides the exit status.
		fmt.Fprintln(os.Stderr, "control-plane:", err)
	}
	return err
}

// reportFailure warns that the cluster failed while the command continues.
func reportFailure(plane *controlplane.ControlPlane, ended <-chan struct{}) {
	select {
	case err := <-plane.Failed():
		fmt.Fprintln(os.Stderr, "control-plane:", err)
	case <-ended:
	}
}

// exitError is the exit status of the command, which has already reported its error.
type exitError int

func (e exitError) Error() string { return fmt.Sprintf("exit status %d", int(e)) }

// runChild runs the command with additional environment variables and forwards signals. It returns an exitError
// if the command fails.
func runChild(ctx context.Context, args, env []string) error {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, append(ending(), syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2)...)
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
