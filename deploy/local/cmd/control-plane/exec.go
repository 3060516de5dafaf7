package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kv8s/curl-me-that/deploy/local/controlplane"
)

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
		controlplane.EnvDir + "=" + plane.Assets().Dir,
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
