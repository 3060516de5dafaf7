package keeper

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"

	"github.com/kv8s/curl-me-that/proto/kube"
	"github.com/kv8s/curl-me-that/proto/process"
	"github.com/kv8s/curl-me-that/watcher/internal/leader"
	"github.com/kv8s/curl-me-that/watcher/keeper/internal/credentials"
)

// name of the service.
const name = "keeper"

// DefaultWorkers is the default of --workers.
const DefaultWorkers = 4

// Config has the settings of keeper.
type Config struct {
	// Service has the flags that every service shares.
	Service process.Options
	// Kube selects the cluster.
	Kube kube.Options
	// Selection selects the Watchers. Keeper writes the first of its annotation keys.
	Selection kube.Selection
	// Namespaces to watch (empty means all).
	Namespaces []string
	// Election elects a leader among the replicas.
	Election leader.Config
	// Sidecars means that the admission policies for sidecars are installed.
	Sidecars bool
	// Workers is the maximum number of concurrent reconciles.
	Workers int
}

// BindFlags adds the flags of keeper.
func (c *Config) BindFlags(fs *pflag.FlagSet) {
	c.Service.WithoutNATS = true
	c.Service.BindFlags(fs, ":8085")
	c.Kube.BindFlags(fs)
	c.Selection.BindFlags(fs)
	fs.StringSliceVar(&c.Namespaces, "namespaces", nil, "namespaces to watch (empty: all)")
	fs.BoolVar(&c.Sidecars, "sidecars", false,
		"watch namespaces and pods with sidecars (only with the admission policies for sidecars)")
	fs.IntVar(&c.Workers, "workers", DefaultWorkers, "maximum number of concurrent reconciles")
	c.Election.BindFlags(fs, name)
}

// Validate returns the first invalid setting, as a sentence.
func (c *Config) Validate() error {
	if err := c.Selection.Validate(); err != nil {
		return err
	}
	if err := kube.ValidateNamespaces("namespaces", c.Namespaces...); err != nil {
		return err
	}
	if c.Workers < 1 {
		return fmt.Errorf("--workers: %d is less than 1", c.Workers)
	}
	return c.Election.Validate()
}

// Command returns the command line of two programs that share only flags: keeper, and with --credentials the compiler
// of credentials. They share a binary because each release then has one image less to build, sign and pull.
func Command(elect leader.Elect) *cobra.Command {
	var c Config
	var compiler credentials.Config
	c.Election.Elect = elect
	cmd := process.NewCommand(&cobra.Command{
		Use:   name,
		Short: "Create a ConfigMap for each Watcher and report its status",
	}, &c, func(ctx context.Context) error {
		if err := compiler.Validate(); err != nil {
			return err
		}
		return c.Kube.Run(ctx, &c.Service, name, func(ctx context.Context, rt *process.Runtime, cluster *rest.Config) error {
			if compiler.Into != "" {
				return credentials.Run(ctx, rt, compiler, cluster)
			}
			return Run(ctx, rt, c, cluster)
		})
	})
	compiler.BindFlags(cmd.Flags())
	return cmd
}
