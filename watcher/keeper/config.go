package keeper

import (
	"fmt"

	"github.com/spf13/pflag"

	"github.com/kv8s/curl-me-that/proto/annotation"
	"github.com/kv8s/curl-me-that/proto/service"
	"github.com/kv8s/curl-me-that/proto/service/kube"
	"github.com/kv8s/curl-me-that/watcher/internal/leader"
)

// name of the service.
const name = "keeper"

// DefaultWorkers is how many Watchers are worked on at a time by
// default.
const DefaultWorkers = 4

// Config is what an operator may choose about keeper.
type Config struct {
	// Service are the flags that every service has.
	Service service.Options
	// Kube names the cluster to work on.
	Kube kube.Options
	// Namespaces whose Watchers are looked at; empty: all.
	Namespaces []string
	// Protected namespaces are left alone, and kube-root-ca.crt everywhere.
	Protected []string
	// Selector is the label selector for Watchers that the API server applies.
	Selector string
	// Grammar is how the watcher reads annotations; the first of its keys is
	// written.
	Grammar annotation.Options
	// Election lets one of several keepers work.
	Election leader.Config
	// Sidecars: the policies are installed by which pods get the sidecars of Watchers.
	Sidecars bool
	// Workers is the number of Watchers that are worked on at a time.
	Workers int
}

// BindFlags adds the flags of keeper.
func (c *Config) BindFlags(fs *pflag.FlagSet) {
	c.Service.WithoutNATS = true
	c.Service.BindFlags(fs, ":8085")
	c.Kube.BindFlags(fs)
	defaults := annotation.Defaults()
	c.Grammar.MinRefresh = defaults.MinRefresh
	fs.StringSliceVar(&c.Namespaces, "namespaces", nil, "namespaces whose Watchers are looked at; empty: all")
	fs.StringSliceVar(&c.Protected, "protected-namespaces", annotation.DefaultProtected(), "namespaces that are left alone")
	fs.StringVar(&c.Selector, "selector", annotation.Selector, "label selector, applied by the API server, for the Watchers to look at")
	fs.StringSliceVar(&c.Grammar.Keys, "annotation-keys", defaults.Keys, "annotations that ask for data, as for the watcher; the first is written")
	fs.StringVar(&c.Grammar.DefaultScheme, "default-scheme", defaults.DefaultScheme, "scheme of URLs that have none, as for the watcher: http or https")
	fs.BoolVar(&c.Sidecars, "sidecars", false, "pods get the sidecars of Watchers, by policies that are installed; watch those pods, and the namespaces that they are in")
	fs.IntVar(&c.Workers, "workers", DefaultWorkers, "Watchers that are worked on at a time")
	c.Election.BindFlags(fs, name)
}

// Validate returns the first thing that is wrong, as a sentence.
func (c *Config) Validate() error {
	if err := kube.ValidateSelection(c.Protected, c.Selector); err != nil {
		return err
	}
	if err := kube.ValidateNamespaces("namespaces", c.Namespaces...); err != nil {
		return err
	}
	if _, err := annotation.New(c.Grammar); err != nil {
		return fmt.Errorf("--annotation-keys or --default-scheme: %w", err)
	}
	if c.Workers < 1 {
		return fmt.Errorf("--workers: %d, at least 1 is needed", c.Workers)
	}
	return c.Election.Validate()
}
