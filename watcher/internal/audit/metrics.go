package audit

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/kv8s/curl-me-that/proto/process/metric"
	"github.com/kv8s/curl-me-that/watcher/internal/wantindex"
)

// Metrics of an Auditor.
type Metrics struct {
	took  prometheus.Histogram
	stale prometheus.Gauge
	lost  *prometheus.CounterVec
}

// NewMetrics makes the metrics in the set of the watcher.
func NewMetrics(set *metric.Set) *Metrics {
	return &Metrics{
		took: set.Histogram("audit_duration_seconds", "Time that a look of the audit took. Eight of them look at all keys.",
			prometheus.ExponentialBuckets(0.001, 4, 9)),
		stale: set.Gauge("stale_keys",
			"Keys with an interval that have had no good fetch for three of them, as the last eight looks of the audit have seen."),
		lost: set.Counters("lost_keys_total",
			"Keys that an audit found without what they ask for, or without what will refresh them, and asked for again, by cause; refused: not for the first time.",
			metric.Of("cause", wantindex.BodyLost, wantindex.Refused, wantindex.TimerLost, wantindex.StreamBehind)),
	}
}
