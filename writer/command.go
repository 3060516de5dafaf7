package writer

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/kv8s/curl-me-that/proto/service"
	"github.com/kv8s/curl-me-that/proto/service/kube"
)

// Command returns the command line of the writer.
func Command() *cobra.Command {
	var c Config
	cmd := &cobra.Command{
		Use:   "writer",
		Short: "Put what was fetched into ConfigMaps",
		Long: "Writer takes results from NATS JetStream and applies them to ConfigMaps.\n" +
			"It needs the permissions to get and patch ConfigMaps and to create Events.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := c.Validate(); err != nil {
				return err
			}
			cluster, err := c.Kube.Config("writer")
			if err != nil {
				return err
			}
			return c.Service.Run(cmd.Context(), "writer", func(ctx context.Context, rt *service.Runtime) error {
				kube.BridgeKlog(rt.Log)
				return Run(ctx, rt, c, cluster)
			})
		},
	}
	c.BindFlags(cmd.Flags())
	return cmd
}
