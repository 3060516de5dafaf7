package keeper

import (
	"context"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"

	"github.com/kv8s/curl-me-that/proto/process"
	"github.com/kv8s/curl-me-that/watcher/internal/leader"
)

// Command returns the command line of keeper.
func Command(elect leader.Elect) *cobra.Command {
	var c Config
	c.Election.Elect = elect
	return process.NewCommand(&cobra.Command{
		Use:   name,
		Short: "Create a ConfigMap for each Watcher and report its status",
	}, &c, func(ctx context.Context) error {
		return c.Kube.Run(ctx, &c.Service, name, func(ctx context.Context, rt *process.Runtime, cluster *rest.Config) error {
			return Run(ctx, rt, c, cluster)
		})
	})
}
