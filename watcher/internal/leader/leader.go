package leader

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	coordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"

	"github.com/kv8s/curl-me-that/proto/process"
	"github.com/kv8s/curl-me-that/proto/process/metric"
)

// Deps are what an election works with.
type Deps struct {
	// Leases is where the Lease is kept.
	Leases coordinationv1.LeasesGetter
	// Lead is what the leader does until ctx is done. An error of it ends the
	// watcher.
	Lead func(ctx context.Context) error
	// Health is ready while another watcher leads: the cache is warm.
	Health *process.Part
	// Holding is 1 while this watcher holds the Lease.
	Holding prometheus.Gauge
	Log     zerolog.Logger
}

// Elect takes part in the election until ctx is done, and leads whenever it holds
// the Lease.
type Elect func(ctx context.Context, c Config, d Deps) error

// Metric makes the metric of the Lease in a set with standard names. Without an election
// it is not shown.
func (c *Config) Metric(set *metric.Set) prometheus.Gauge {
	if !c.Enabled {
		return prometheus.NewGauge(prometheus.GaugeOpts{})
	}
	return set.Gauges("leader_election_master_status", "Whether this process holds the Lease: 0 or 1.",
		metric.Of("name", c.Name)).WithLabelValues(c.Name)
}

// Run leads until ctx is done, with an election whenever this one is elected.
func Run(ctx context.Context, c Config, d Deps) error {
	if !c.Enabled {
		return d.Lead(ctx)
	}
	return c.Elect(ctx, c, d)
}
