package writer

import (
	"context"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"

	"github.com/kv8s/curl-me-that/proto/process"
	"github.com/kv8s/curl-me-that/proto/process/kube"
)

// Command returns the command line of the writer.
func Command() *cobra.Command {
	var c Config
	return process.NewCommand(&cobra.Command{
		Use:   "writer",
		Short: "Write fetched bodies into ConfigMaps",
		Long: "Writer takes results from NATS JetStream and applies them to ConfigMaps.\n" +
			"It needs the permissions to get and patch ConfigMaps and to create Events.",
	}, &c, func(ctx context.Context) error {
		return c.Kube.Run(ctx, &c.Service, "writer",
			func(ctx context.Context, rt *process.Runtime, cluster *rest.Config) error {
				kube.BridgeKlog(rt.Log)
				return Run(ctx, rt, c, cluster)
			})
	})
}
