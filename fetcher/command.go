// Package fetcher is the only service that connects to the internet. It reads wants from NATS,
// fetches their URLs, and passes bodies and failures to the writer. It keeps no state and has no
// access to Kubernetes. Any number of replicas share the work.
package fetcher

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/kv8s/curl-me-that/proto/process"
)

// defaultListen is the address for health and metrics.
const defaultListen = ":8082"

// Command returns the command line of the service.
func Command() *cobra.Command {
	var options process.Options
	cfg := DefaultConfig()
	cmd := process.NewCommand(&cobra.Command{
		Use:   "fetcher",
		Short: "Fetch the URLs of ConfigMaps",
		Long: "Fetcher reads wants from NATS, fetches their URLs, and passes bodies and\n" +
			"failures to the writer. It has no access to Kubernetes.",
	}, &cfg, func(ctx context.Context) error {
		return options.Run(ctx, "fetcher", func(ctx context.Context, rt *process.Runtime) error {
			return Run(ctx, rt, cfg)
		})
	})
	options.BindFlags(cmd.Flags(), defaultListen)
	return cmd
}
