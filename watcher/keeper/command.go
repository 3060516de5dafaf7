package keeper

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/kv8s/curl-me-that/proto/service"
)

// Command returns the command line of keeper.
func Command() *cobra.Command {
	var c Config
	cmd := &cobra.Command{
		Use:   name,
		Short: "Make a ConfigMap of each Watcher, and report how it fares",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := c.Validate(); err != nil {
				return err
			}
			cluster, err := c.Kube.Config(name)
			if err != nil {
				return err
			}
			return c.Service.Run(cmd.Context(), name, func(ctx context.Context, rt *service.Runtime) error {
				return Run(ctx, rt, c, cluster)
			})
		},
	}
	c.BindFlags(cmd.Flags())
	return cmd
}
