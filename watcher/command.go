package watcher

import (
	"context"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"

	"github.com/kv8s/curl-me-that/proto/process"
	"github.com/kv8s/curl-me-that/watcher/internal/leader"
)

// Command returns the command line of the watcher.
func Command(elect leader.Elect) *cobra.Command {
	var c Config
	c.Election.Elect = elect
	return process.NewCommand(&cobra.Command{
		Use:   "watcher",
		Short: "Watch annotated ConfigMaps and publish their wants",
	}, &c, func(ctx context.Context) error {
		return c.Kube.Run(ctx, &c.Service, "watcher",
			func(ctx context.Context, rt *process.Runtime, cluster *rest.Config) error {
				return Run(ctx, rt, c, cluster)
			})
	})
}
