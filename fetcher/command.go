package fetcher

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/kv8s/curl-me-that/proto/process"
)

// defaultListen is where health and metrics are served.
const defaultListen = ":8082"

// Command returns the command line of the service.
func Command() *cobra.Command {
	var options process.Options
	cfg := DefaultConfig()
	cmd := process.NewCommand(&cobra.Command{
		Use:   "fetcher",
		Short: "Fetch what ConfigMaps ask for",
		Long: "Fetcher reads from NATS what ConfigMaps ask for, curls it, and hands bodies and\n" +
			"failures to the writer. It has no access to Kubernetes.",
	}, &cfg, func(ctx context.Context) error {
		return options.Run(ctx, "fetcher", func(ctx context.Context, rt *process.Runtime) error {
			return Run(ctx, rt, cfg)
		})
	})
	options.BindFlags(cmd.Flags(), defaultListen)
	cmd.AddCommand(checkCommand())
	return cmd
}
