package watcher

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"

	"github.com/kv8s/curl-me-that/proto/annotation"
	"github.com/kv8s/curl-me-that/proto/budget"
	"github.com/kv8s/curl-me-that/proto/duration"
	"github.com/kv8s/curl-me-that/proto/kube"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/process"
	"github.com/kv8s/curl-me-that/proto/signature"
	"github.com/kv8s/curl-me-that/watcher/internal/leader"
	"github.com/kv8s/curl-me-that/watcher/internal/quota"
	"github.com/kv8s/curl-me-that/watcher/internal/reconcile"
)

// Values of --manage-streams.
const (
	manageUpdate = "update"
	manageCreate = "create"
	manageOff    = "off"
)

// Config has the settings of the watcher.
type Config struct {
	// Service has the flags of every service.
	Service process.Options
	// Kube selects the cluster to watch.
	Kube kube.Options
	// Selection selects the ConfigMaps to watch.
	Selection kube.Selection
	// Namespaces to watch (empty: all).
	Namespaces []string
	// Coalesce is how long further edits of an object are collected after the publish of the first one.
	Coalesce time.Duration
	// Audit is the interval between audits, at least a second. The streams are checked at least as
	// often.
	Audit time.Duration
	// ManageStreams is update (create and update streams and consumers), create (create missing
	// ones) or off.
	ManageStreams string
	Streams       pipeline.Topology
	Election      leader.Config
	// MaxRemovals limits the removals of a namespace within a minute.
	MaxRemovals reconcile.MaxRemovals
	// Events limits the Events of a namespace.
	Events budget.Config
	// Quota limits the keys of a namespace and their refreshes.
	Quota quota.Limits
	// SigningKey is a file with the NKey seed to sign wants with (empty: wants are not signed).
	SigningKey string
	// Workers is the maximum number of concurrent reconciles.
	Workers int
}

// BindFlags adds the flags of the watcher.
func (c *Config) BindFlags(fs *pflag.FlagSet) {
	c.Service.BindFlags(fs, ":8081")
	c.Kube.BindFlags(fs)
	c.Selection.BindFlags(fs)
	fs.StringSliceVar(&c.Namespaces, "namespaces", nil, "namespaces to watch (empty: all)")
	duration.Var(fs, &c.Selection.Grammar.MinRefresh, "min-refresh", c.Selection.Grammar.MinRefresh,
		"minimum interval of curl-refresh, to which shorter ones are raised")
	duration.Var(fs, &c.Coalesce, "coalesce", 250*time.Millisecond,
		"how long further edits of an object are collected after the first one")
	duration.Var(fs, &c.Audit, "audit-interval", 2*time.Minute,
		"interval between audits, which find lost bodies and timers")
	fs.IntVar(&c.MaxRemovals.Keys, "max-removals", 50,
		"maximum number of keys of a namespace that are removed within a minute because their annotation is gone. A "+
			"namespace that exceeds it and --max-removals-percent keeps its keys (0: no maximum)")
	fs.IntVar(&c.MaxRemovals.Percent, "max-removals-percent", 20,
		"maximum share of the keys of a namespace that are removed within a minute, see --max-removals. If a larger "+
			"share of the namespaces exceeds it, all keep their keys")
	kube.BindEventBudget(fs, &c.Events)
	fs.IntVar(&c.Quota.Keys, "namespace-keys", 10_000,
		"maximum number of keys of one namespace, the oldest ConfigMaps first (0: no maximum)")
	fs.IntVar(&c.Quota.Refreshes, "namespace-refreshes", 200,
		"maximum refreshes of one namespace per second. If its keys request more, their intervals are multiplied (0: "+
			"no maximum)")
	fs.IntVar(&c.Workers, "workers", 8, "maximum number of concurrent reconciles")
	fs.StringVar(&c.ManageStreams, "manage-streams", manageUpdate,
		"management of streams and consumers: update (create or update), create (only missing ones, if a setup job "+
			"updates), or off")
	c.Streams.BindFlags(fs, "stream-replicas")
	fs.StringVar(&c.SigningKey, "signing-key", "",
		"file with the NKey seed to sign wants with, created by curlctl identities. Without it the writer reads "+
			"objects first")
	c.Election.BindFlags(fs, "watcher")
}

// Validate returns the first invalid setting, as a sentence.
func (c *Config) Validate() error {
	if err := c.Selection.Validate(); err != nil {
		return err
	}
	if err := kube.ValidateNamespaces("namespaces", c.Namespaces...); err != nil {
		return err
	}
	for _, ns := range c.Namespaces {
		if slices.Contains(c.Selection.Protected, ns) {
			return fmt.Errorf("--namespaces: %q is protected. To watch it, remove it from --protected-namespaces", ns)
		}
	}
	if _, err := signature.LoadSigner(c.SigningKey); err != nil {
		return fmt.Errorf("--signing-key: %w", err)
	}
	percent := c.MaxRemovals.Percent
	managed := slices.Contains([]string{manageUpdate, manageCreate, manageOff}, c.ManageStreams)
	return cmp.Or(
		process.CheckFlag("coalesce", c.Coalesce >= 0, process.NotNegative),
		process.CheckFlag("audit-interval", c.Audit >= time.Second, "at least 1s"),
		process.CheckFlag("max-removals", c.MaxRemovals.Keys >= 0, process.NotNegative),
		process.CheckFlag("max-removals-percent", percent >= 0 && percent <= 100, "from 0 to 100"),
		process.CheckFlag("namespace-events", c.Events.Burst >= 0, process.NotNegative),
		process.CheckFlag("namespace-keys", c.Quota.Keys >= 0, process.NotNegative),
		process.CheckFlag("namespace-refreshes", c.Quota.Refreshes >= 0, process.NotNegative),
		process.CheckFlag("workers", c.Workers >= 1, process.Positive),
		process.CheckFlag("manage-streams", managed, "update, create or off"),
		c.Streams.Validate(),
		c.Election.Validate(),
	)
}

// protects reports whether an object is always ignored.
func (c *Config) protects(namespace, name string) bool {
	return annotation.Protects(c.Selection.Protected, namespace, name)
}

func (c *Config) watches(namespace string) bool {
	return len(c.Namespaces) == 0 || slices.Contains(c.Namespaces, namespace)
}

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
