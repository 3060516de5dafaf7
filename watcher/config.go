package watcher

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"time"

	"github.com/spf13/pflag"

	"github.com/kv8s/curl-me-that/proto/annotation"
	"github.com/kv8s/curl-me-that/proto/annotation/duration"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/process"
	"github.com/kv8s/curl-me-that/proto/process/budget"
	"github.com/kv8s/curl-me-that/proto/process/kube"
	"github.com/kv8s/curl-me-that/proto/signature"
	"github.com/kv8s/curl-me-that/watcher/internal/leader"
	"github.com/kv8s/curl-me-that/watcher/internal/quota"
	"github.com/kv8s/curl-me-that/watcher/internal/reconcile"
)

// What --manage-streams may be.
const (
	manageUpdate = "update"
	manageCreate = "create"
	manageOff    = "off"
)

// Config is what an operator may choose about the watcher.
type Config struct {
	// Service are the flags that every service has.
	Service process.Options
	// Kube selects the cluster to watch.
	Kube kube.Options
	// Namespaces to watch; empty: all.
	Namespaces []string
	// Protected namespaces are left alone, and kube-root-ca.crt everywhere.
	Protected []string
	// Selector is the label selector that the API server applies.
	Selector string
	// Grammar is how annotations are read.
	Grammar annotation.Options
	// Coalesce is how long a burst of edits of one object is gathered after
	// its first edit was published.
	Coalesce time.Duration
	// Audit is the interval at which wants are looked for that nothing is
	// under way for; at least a second. The streams are looked at as often,
	// where that is more often than usual.
	Audit time.Duration
	// ManageStreams is what the watcher does to the streams and consumers:
	// update (create them, and bring existing ones up to date), create (only
	// what is missing), or off.
	ManageStreams string
	// Streams configures them.
	Streams pipeline.Topology
	// Election lets one of several watchers publish.
	Election leader.Config
	// Monitors are the addresses of the monitoring ports of the NATS servers,
	// such as http://nats:8222. They are asked how soon the servers write to
	// disk, for the metrics; none: that stays unknown.
	Monitors []string
	// MaxRemovals bounds the keys that are removed within a minute.
	MaxRemovals reconcile.MaxRemovals
	// Events bounds those of one namespace.
	Events budget.Config
	// Quota bounds the keys of one namespace, and their refreshes.
	Quota quota.Limits
	// SigningKey is the file with the NKey seed that wants are signed with; empty:
	// they are not signed.
	SigningKey string
	// Workers is the number of objects that are worked on at a time.
	Workers int
}

// BindFlags adds the flags of the watcher.
func (c *Config) BindFlags(fs *pflag.FlagSet) {
	c.Service.BindFlags(fs, ":8081")
	c.Kube.BindFlags(fs)
	defaults := annotation.Defaults()
	fs.StringSliceVar(&c.Namespaces, "namespaces", nil, "namespaces to watch; empty: all")
	fs.StringSliceVar(&c.Protected, "protected-namespaces", annotation.DefaultProtected(), "namespaces that are left alone")
	fs.StringVar(&c.Selector, "selector", annotation.Selector, "label selector, applied by the API server, for the ConfigMaps to watch")
	fs.StringSliceVar(&c.Grammar.Keys, "annotation-keys", defaults.Keys, "annotations that ask for data, in order of precedence")
	fs.StringVar(&c.Grammar.DefaultScheme, "default-scheme", defaults.DefaultScheme, "scheme of URLs that have none: http or https")
	duration.Var(fs, &c.Grammar.MinRefresh, "min-refresh", defaults.MinRefresh, "shortest interval of curl-refresh; shorter ones are raised to it")
	duration.Var(fs, &c.Coalesce, "coalesce", 250*time.Millisecond, "how long a burst of edits of one object is gathered after the first")
	duration.Var(fs, &c.Audit, "audit-interval", 2*time.Minute, "how often to look for keys that do not hold what they ask for while nothing is under way")
	fs.IntVar(&c.MaxRemovals.Keys, "max-removals", 50, "maximum number of keys of a namespace that are removed within a minute because they are no longer annotated; if more would be, and more than --max-removals-percent, that namespace keeps them; 0: any number")
	fs.IntVar(&c.MaxRemovals.Percent, "max-removals-percent", 20, "maximum share of the keys of a namespace that are removed within a minute, see --max-removals; if more namespaces than this share exceed it, all keep their keys")
	c.Events.Refill = 500 * time.Second
	fs.Int64Var(&c.Events.Burst, "namespace-events", 1000, "Events for one namespace at once, which come back in 500 s; 0: no bound")
	fs.IntVar(&c.Quota.Keys, "namespace-keys", 10_000, "maximum number of keys of one namespace, the oldest ConfigMaps first; 0: no maximum")
	fs.IntVar(&c.Quota.Refreshes, "namespace-refreshes", 200, "refreshes of one namespace per second; if its keys ask for more, their intervals are stretched; 0: no maximum")
	fs.IntVar(&c.Workers, "workers", 8, "objects that are worked on at a time")
	fs.StringVar(&c.ManageStreams, "manage-streams", manageUpdate, "what is done to streams and consumers: update (create or update), create (what is missing, when a setup job updates), or off")
	c.Streams.BindFlags(fs, "stream-replicas")
	fs.StringVar(&c.SigningKey, "signing-key", "", "file with the NKey seed to sign wants with, so that the writer need not read objects first; curlctl identities makes it")
	fs.StringSliceVar(&c.Monitors, "nats-monitor", nil, "addresses of the monitoring ports of all NATS servers, such as http://nats:8222, for the metric of how soon they write to disk")
	c.Election.BindFlags(fs, "watcher")
}

// Validate returns the first thing that is wrong, as a sentence.
func (c *Config) Validate() error {
	if err := kube.ValidateSelection(c.Protected, c.Selector); err != nil {
		return err
	}
	if err := kube.ValidateNamespaces("namespaces", c.Namespaces...); err != nil {
		return err
	}
	for _, ns := range c.Namespaces {
		if slices.Contains(c.Protected, ns) {
			return fmt.Errorf("--namespaces: %q is protected; take it out of --protected-namespaces to watch it", ns)
		}
	}
	if err := validateGrammar(c.Grammar); err != nil {
		return err
	}
	switch {
	case c.Coalesce < 0:
		return errors.New("--coalesce: a negative duration makes no sense")
	case c.Audit < time.Second:
		return fmt.Errorf("--audit-interval: %s is shorter than a second", c.Audit)
	case c.MaxRemovals.Keys < 0:
		return fmt.Errorf("--max-removals: %d is less than 0", c.MaxRemovals.Keys)
	case c.MaxRemovals.Percent < 0 || c.MaxRemovals.Percent > 100:
		return fmt.Errorf("--max-removals-percent: %d is not a share from 0 to 100", c.MaxRemovals.Percent)
	case c.Events.Burst < 0:
		return fmt.Errorf("--namespace-events: %d is negative", c.Events.Burst)
	case c.Quota.Keys < 0:
		return fmt.Errorf("--namespace-keys: %d is negative", c.Quota.Keys)
	case c.Quota.Refreshes < 0:
		return fmt.Errorf("--namespace-refreshes: %d is negative", c.Quota.Refreshes)
	case c.Workers < 1:
		return fmt.Errorf("--workers: %d, at least 1 is needed", c.Workers)
	}
	if _, err := signature.LoadSigner(c.SigningKey); err != nil {
		return fmt.Errorf("--signing-key: %w", err)
	}
	for _, address := range c.Monitors {
		if u, err := url.Parse(address); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			return fmt.Errorf("--nats-monitor: %q is not an address such as http://nats:8222", address)
		}
	}
	if !slices.Contains([]string{manageUpdate, manageCreate, manageOff}, c.ManageStreams) {
		return fmt.Errorf("--manage-streams: %q is not update, create or off", c.ManageStreams)
	}
	if err := c.Streams.Validate(); err != nil {
		return err
	}
	return c.Election.Validate()
}

// validateGrammar names the flag that package annotation refuses.
func validateGrammar(o annotation.Options) error {
	for _, flag := range []string{"annotation-keys", "default-scheme", "min-refresh"} {
		one := annotation.Defaults()
		switch flag {
		case "annotation-keys":
			one.Keys = o.Keys
		case "default-scheme":
			one.DefaultScheme = o.DefaultScheme
		default:
			one.MinRefresh = o.MinRefresh
		}
		if _, err := annotation.New(one); err != nil {
			return fmt.Errorf("--%s: %w", flag, err)
		}
	}
	return nil
}

// protects reports whether an object is left alone whatever it asks for.
func (c *Config) protects(namespace, name string) bool {
	return annotation.Protects(c.Protected, namespace, name)
}

// watches reports whether a namespace is in scope.
func (c *Config) watches(namespace string) bool {
	return len(c.Namespaces) == 0 || slices.Contains(c.Namespaces, namespace)
}
