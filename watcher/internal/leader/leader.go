// Package leader elects the watcher that publishes among several.
package leader

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"
	coordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"

	"github.com/kv8s/curl-me-that/proto/duration"
	"github.com/kv8s/curl-me-that/proto/kube"
	"github.com/kv8s/curl-me-that/proto/process"
	"github.com/kv8s/curl-me-that/proto/process/metric"
)

// Deps are the dependencies of an election.
type Deps struct {
	Leases coordinationv1.LeasesGetter
	// Lead runs until its context is done, at the end of the leadership. Its error ends the process.
	Lead func(ctx context.Context) error
	// Health is ready during standby, because the cache is warm.
	Health *process.HealthPart
	// Holding is 1 while this process holds the Lease.
	Holding prometheus.Gauge
	Log     zerolog.Logger
}

// Metric creates the metric of the Lease. Without an election it is not registered.
func (c *Config) Metric(set *metric.Set) prometheus.Gauge {
	if !c.Enabled {
		return prometheus.NewGauge(prometheus.GaugeOpts{})
	}
	return set.Gauges("leader_election_master_status", "Whether this process holds the Lease: 0 or 1.",
		metric.Labeled("name", c.Name)).WithLabelValues(c.Name)
}

// Run leads until ctx is done, after an election if that is enabled.
func Run(ctx context.Context, c Config, d Deps) error {
	if !c.Enabled {
		return d.Lead(ctx)
	}
	return c.Elect(ctx, c, d)
}

// DefaultName returns the default name of a service's Lease.
func DefaultName(service string) string { return "curl-me-that-" + service }

// Elect takes part in elections until ctx is done, and leads in between.
type Elect func(ctx context.Context, c Config, d Deps) error

// Config has the settings of the election. It only saves work, because two leaders do no harm.
type Config struct {
	// Enabled turns the election on. Elect runs it: lease.Elect, or nil in a program without elections.
	Enabled         bool
	Elect           Elect
	Namespace, Name string
	// Lease, Renew and Retry are the durations of client-go's leader election.
	Lease, Renew, Retry time.Duration
}

// Installation identifies the watchers that share a Lease. It is empty without an election, because then
// installations cannot be told apart.
func (c *Config) Installation() string {
	if !c.Enabled {
		return ""
	}
	return c.Namespace + "/" + c.Name
}

// BindFlags adds the flags of the election.
func (c *Config) BindFlags(fs *pflag.FlagSet, service string) {
	fs.BoolVar(&c.Enabled, "leader-elect", false, "elect a leader among the replicas")
	fs.StringVar(&c.Namespace, "leader-elect-namespace", "default", "namespace of the Lease")
	fs.StringVar(&c.Name, "leader-elect-name", DefaultName(service), "name of the Lease")
	duration.Var(fs, &c.Lease, "leader-elect-lease-duration", 15*time.Second,
		"how long standby replicas wait for a silent leader")
	duration.Var(fs, &c.Renew, "leader-elect-renew-deadline", 10*time.Second,
		"how long a leader tries to renew the Lease before it gives up")
	duration.Var(fs, &c.Retry, "leader-elect-retry-period", 2*time.Second, "pause between tries")
}

// Validate returns the first invalid setting, as a sentence.
func (c *Config) Validate() error {
	if !c.Enabled {
		return nil
	}
	if err := kube.ValidateNamespaces("leader-elect-namespace", c.Namespace); err != nil {
		return err
	}
	switch {
	case len(validation.IsDNS1123Subdomain(c.Name)) > 0:
		return fmt.Errorf("--leader-elect-name: %q is not the name of a Lease", c.Name)
	case c.Lease < time.Second:
		return fmt.Errorf("--leader-elect-lease-duration: %s is shorter than a second", c.Lease)
	case c.Retry <= 0 || c.Renew <= c.Retry*12/10 || c.Lease <= c.Renew:
		return errors.New("--leader-elect-lease-duration must be longer than --leader-elect-renew-deadline, and that " +
			"at least 1.2 times --leader-elect-retry-period")
	}
	return nil
}
