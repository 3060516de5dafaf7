package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/kv8s/curl-me-that/deploy/local/controlplane/access"
)

// healthcheckTimeout is below the timeout that container engines give a health
// check.
const healthcheckTimeout = 3 * time.Second

func newHealthcheck() *cobra.Command {
	var kubeconfig, server string
	command := &cobra.Command{
		Use:   "healthcheck --kubeconfig FILE",
		Short: "Ask an API server whether it is ready; exit with 1 if it is not",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), healthcheckTimeout)
			defer cancel()
			config, err := access.Load(kubeconfig, "")
			if err != nil {
				return err
			}
			if server != "" {
				config = access.At(config, server)
			}
			client, err := access.ClientConfig(config)
			if err != nil {
				return err
			}
			return access.Ready(ctx, client)
		},
	}
	command.Flags().StringVar(&kubeconfig, "kubeconfig", "", "kubeconfig of a user who may see the namespace default")
	command.Flags().StringVar(&server, "server", "", "URL of the API server, if not that of the kubeconfig")
	return command
}
