package watcher

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/kv8s/curl-me-that/proto/annotation"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/service"
	"github.com/kv8s/curl-me-that/proto/service/kube"
)

// Config is what an operator may choose about the watcher.
type Config struct {
	// Service are the flags that every service has.
	Service service.Options
	// Kube says which cluster to watch.
	Kube kube.Options
	// Namespaces to watch; empty: all.
	Namespaces []string
	// Protected namespaces are left alone, and kube-root-ca.crt everywhere.
	Protected []string
	// Selector is the label selector that the API server applies.
	Selector string
	// Grammar says how annotations are read.
	Grammar annotation.Options
	// Coalesce is how long a burst of edits of one object is gathered after
	// its first edit was published.
	Coalesce time.Duration
	// Audit is the interval at which wants are looked for that nothing is on
	// its way for; at least a minute.
	Audit time.Duration
	// ManageStreams creates and updates the streams and consumers. Off, they
	// must be set up by somebody else.
	ManageStreams bool
	// Streams says how.
	Streams pipeline.Topology
	// Election lets one of several watchers publish.
	Election ElectionConfig
	// Workers is the number of objects that are worked on at a time.
	Workers int
}

// ElectionConfig says how several watchers agree on the one that publishes.
// Two that publish at once do no harm; it only saves work.
type ElectionConfig struct {
	// Enabled turns the election on.
	Enabled bool
	// Namespace and Name of the Lease.
	Namespace, Name string
	// Identity of this watcher; empty: the host name and a random part.
	Identity string
	// Lease, Renew and Retry are the durations of client-go's leader election.
	Lease, Renew, Retry time.Duration
}

// DefaultProtected are the namespaces that the control plane itself keeps
// ConfigMaps in.
func DefaultProtected() []string { return []string{"kube-system", "kube-public", "kube-node-lease"} }

// BindFlags adds the flags of the watcher.
func (c *Config) BindFlags(fs *pflag.FlagSet) {
	c.Service.BindFlags(fs, ":8081")
	c.Kube.BindFlags(fs)
	defaults := annotation.Defaults()
	fs.StringSliceVar(&c.Namespaces, "namespaces", nil, "namespaces to watch; empty: all")
	fs.StringSliceVar(&c.Protected, "protected-namespaces", DefaultProtected(), "namespaces that are left alone")
	fs.StringVar(&c.Selector, "selector", annotation.Selector, "label selector, applied by the API server, for the ConfigMaps to watch")
	fs.StringSliceVar(&c.Grammar.Keys, "annotation-keys", defaults.Keys, "annotations that ask for data, in order of precedence")
	fs.StringVar(&c.Grammar.DefaultScheme, "default-scheme", defaults.DefaultScheme, "scheme of URLs that have none: http or https")
	fs.DurationVar(&c.Grammar.MinRefresh, "min-refresh", defaults.MinRefresh, "shortest interval of curl-refresh; shorter ones are raised to it")
	fs.DurationVar(&c.Coalesce, "coalesce", 250*time.Millisecond, "how long a burst of edits of one object is gathered after the first")
	fs.DurationVar(&c.Audit, "audit-interval", 10*time.Minute, "how often to look for keys that nothing is on its way for")
	fs.IntVar(&c.Workers, "workers", 8, "objects that are worked on at a time")
	fs.BoolVar(&c.ManageStreams, "manage-streams", true, "create and update streams and consumers; off when a setup job does")
	fs.IntVar(&c.Streams.Replicas, "stream-replicas", 0, "replicas of each stream: 1, 3 or 5; 0 leaves existing streams as they are")
	fs.Int64Var(&c.Streams.MaxResultBytes, "max-results-bytes", 4<<30, "bytes of results that may wait for the writer")
	fs.Int64Var(&c.Streams.MaxFailureBytes, "max-failures-bytes", 1<<30, "bytes of failures that are kept")
	fs.DurationVar(&c.Streams.FailureAge, "failures-max-age", 14*24*time.Hour, "how long failures are kept")
	c.Election.bindFlags(fs)
}

func (e *ElectionConfig) bindFlags(fs *pflag.FlagSet) {
	fs.BoolVar(&e.Enabled, "leader-elect", false, "let one of several watchers publish; the others keep their cache warm")
	fs.StringVar(&e.Namespace, "leader-elect-namespace", "default", "namespace of the Lease")
	fs.StringVar(&e.Name, "leader-elect-name", "curl-me-that-watcher", "name of the Lease")
	fs.StringVar(&e.Identity, "leader-elect-identity", "", "name of this watcher in the Lease; empty: the host name and a random part")
	fs.DurationVar(&e.Lease, "leader-elect-lease-duration", 15*time.Second, "how long others wait for a leader that is silent")
	fs.DurationVar(&e.Renew, "leader-elect-renew-deadline", 10*time.Second, "how long a leader tries to renew before it gives up")
	fs.DurationVar(&e.Retry, "leader-elect-retry-period", 2*time.Second, "pause between tries")
}

// Validate returns the first thing that is wrong, as a sentence.
func (c *Config) Validate() error {
	for _, ns := range c.Namespaces {
		if len(validation.IsDNS1123Label(ns)) > 0 {
			return fmt.Errorf("--namespaces: %q is not the name of a namespace", ns)
		}
		if slices.Contains(c.Protected, ns) {
			return fmt.Errorf("--namespaces: %q is protected; take it out of --protected-namespaces to watch it", ns)
		}
	}
	if _, err := labels.Parse(c.Selector); err != nil {
		return fmt.Errorf("--selector: %q is not a label selector such as %s", c.Selector, annotation.Selector)
	}
	switch {
	case c.Coalesce < 0:
		return errors.New("--coalesce: a negative duration makes no sense")
	case c.Audit < time.Minute:
		return fmt.Errorf("--audit-interval: %s is shorter than a minute", c.Audit)
	case c.Workers < 1:
		return fmt.Errorf("--workers: %d, at least 1 is needed", c.Workers)
	case !slices.Contains([]int{0, 1, 3, 5}, c.Streams.Replicas):
		return fmt.Errorf("--stream-replicas: %d is not 1, 3 or 5", c.Streams.Replicas)
	case c.Streams.MaxResultBytes < 16<<20:
		return fmt.Errorf("--max-results-bytes: %d is less than 16 MiB", c.Streams.MaxResultBytes)
	}
	return c.Election.validate()
}

func (e *ElectionConfig) validate() error {
	switch {
	case !e.Enabled:
		return nil
	case len(validation.IsDNS1123Label(e.Namespace)) > 0:
		return fmt.Errorf("--leader-elect-namespace: %q is not the name of a namespace", e.Namespace)
	case len(validation.IsDNS1123Subdomain(e.Name)) > 0:
		return fmt.Errorf("--leader-elect-name: %q is not the name of a Lease", e.Name)
	case e.Retry <= 0 || e.Renew <= e.Retry*12/10 || e.Lease <= e.Renew:
		return errors.New("--leader-elect-lease-duration must be longer than --leader-elect-renew-deadline, and that at least 1.2 times --leader-elect-retry-period")
	}
	return nil
}

// scopes returns the namespaces to watch, "" for all.
func (c *Config) scopes() []string {
	if len(c.Namespaces) == 0 {
		return []string{""}
	}
	return slices.Compact(slices.Sorted(slices.Values(c.Namespaces)))
}

// protects tells whether an object is left alone whatever it asks for.
func (c *Config) protects(namespace, name string) bool {
	return name == "kube-root-ca.crt" || slices.Contains(c.Protected, namespace)
}

// watches tells whether a namespace is in scope.
func (c *Config) watches(namespace string) bool {
	return len(c.Namespaces) == 0 || slices.Contains(c.Namespaces, strings.TrimSpace(namespace))
}
