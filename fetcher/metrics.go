package fetcher

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/kv8s/curl-me-that/fetcher/internal/engine"
	"github.com/kv8s/curl-me-that/fetcher/internal/throttle"
	"github.com/kv8s/curl-me-that/proto/process/metric"
)

// Metrics returns the definitions of the fetcher's metrics.
func Metrics() []metric.Definition {
	cfg := DefaultConfig()
	set := metric.New(prometheus.NewRegistry(), "fetcher")
	newMetrics(set, cfg, throttle.New(cfg.Throttle))
	return set.Definitions()
}

// newMetrics registers the metrics of a fetcher and returns the engine's.
func newMetrics(set *metric.Set, cfg Config, slots *throttle.Throttle) *engine.Metrics {
	m := engine.NewMetrics(set)
	set.GaugeFunc("in_flight_limit_messages", "Maximum number of messages in flight.",
		func() float64 { return float64(cfg.Throttle.Slots) })
	set.GaugeFunc("queued_keys", "Keys in the fetcher's memory that wait for a slot of their host or a shared GET.",
		func() float64 { return float64(slots.Queued()) })
	set.Families(func() []map[string]float64 { return []map[string]float64{slots.Hosts()} }, metric.Definition{
		Name: "hosts",
		Help: "Hosts by state: paused (by Retry-After), queued (keys wait for a slot), " +
			"active (with running GETs). Each in the first state that applies.",
		Labels: []metric.Label{metric.Labeled("state", throttle.States()...)},
	})
	return m
}
