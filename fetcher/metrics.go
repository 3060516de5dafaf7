package fetcher

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kv8s/curl-me-that/fetcher/internal/engine"
	"github.com/kv8s/curl-me-that/fetcher/internal/throttle"
	"github.com/kv8s/curl-me-that/proto/process/metric"
)

// Metrics returns what the metrics of a fetcher are.
func Metrics() []metric.Definition {
	cfg := DefaultConfig()
	set := metric.New(prometheus.NewRegistry(), "fetcher")
	if slots, err := throttle.New(cfg.Throttle, throttle.Deps{Now: time.Now}); err == nil {
		newMetrics(set, cfg, slots)
	}
	return set.Definitions()
}

// newMetrics makes the metrics of a fetcher, and returns those of its engine.
func newMetrics(set *metric.Set, cfg Config, slots *throttle.Throttle) *engine.Metrics {
	m := engine.NewMetrics(set)
	set.GaugeFunc("in_flight_limit_messages", "Messages that may be in work at a time.",
		func() float64 { return float64(cfg.Throttle.Slots) })
	set.GaugeFunc("queued_keys", "Keys that wait for a slot of their host in the memory of the fetcher.",
		func() float64 { return float64(slots.Queued()) })
	set.GaugesFunc("hosts",
		"Hosts, by state: paused (asked by Retry-After to be left alone), queued (keys wait for a slot), "+
			"active (GETs are under way); each in the first that fits.",
		metric.Of("state", throttle.States()...), slots.Hosts)
	return m
}
