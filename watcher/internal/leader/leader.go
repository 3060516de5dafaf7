package leader

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	coordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"

	"github.com/kv8s/curl-me-that/proto/process"
	"github.com/kv8s/curl-me-that/proto/process/metric"
)

// Deps are the dependencies of an election.
type Deps struct {
	Leases coordinationv1.LeasesGetter
	// Lead is called with a context that ends with the leadership. Its error ends the watcher.
	Lead func(ctx context.Context) error
	// Health is ready during standby, because the cache is warm.
	Health *process.Part
	// Holding is 1 while this watcher holds the Lease.
	Holding prometheus.Gauge
	Log     zerolog.Logger
}

// Elect takes part in the election until ctx is done, and leads while it holds the Lease.
type Elect func(ctx context.Context, c Config, d Deps) error

// Metric creates the metric of the Lease. Without an election it is not registered.
func (c *Config) Metric(set *metric.Set) prometheus.Gauge {
	if !c.Enabled {
		return prometheus.NewGauge(prometheus.GaugeOpts{})
	}
	return set.Gauges("leader_election_master_status", "Whether this process holds the Lease: 0 or 1.",
		metric.Of("name", c.Name)).WithLabelValues(c.Name)
}

// Run leads until ctx is done, after an election if that is enabled.
func Run(ctx context.Context, c Config, d Deps) error {
	if !c.Enabled {
		return d.Lead(ctx)
	}
	return c.Elect(ctx, c, d)
}
