// Command control-plane runs another command with a Kubernetes API server: that of KUBECONFIG, or a temporary
// one. Its other subcommands set up the API server of docker compose.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/kv8s/curl-me-that/deploy/local/controlplane"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	root := &cobra.Command{
		Use:           "control-plane",
		Short:         "Run a real etcd and kube-apiserver on this machine, or give programs access to a cluster",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddCommand(newExec(), newAssets(), newPrepare(), newGrant(), newHealthcheck())
	err := root.ExecuteContext(ctx)
	if status, ok := errors.AsType[exitError](err); ok {
		os.Exit(int(status)) //nolint:gocritic // nothing is left to stop
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "control-plane:", err)
		os.Exit(1)
	}
}

// command returns a subcommand without arguments.
func command(use, short, long string, run func(*cobra.Command) error) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, Long: long, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return run(cmd) },
	}
}

func newAssets() *cobra.Command {
	var options controlplane.ProgramOptions
	cmd := command("assets", "Print the folder of etcd, kube-apiserver and kubectl, which it downloads or builds if "+
		"needed", "",
		func(cmd *cobra.Command) error {
			options.Progress = cmd.ErrOrStderr()
			binaries, err := controlplane.FindPrograms(cmd.Context(), options)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), binaries.Dir)
			return err
		})
	cmd.Flags().BoolVar(&options.Build, "build", false,
		"build from source, and ignore KUBEBUILDER_ASSETS and archives of envtest")
	return cmd
}
