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
			"Keys without a good fetch for three of their intervals, according to the last eight looks of the audit."),
		lost: set.Counters("lost_keys_total",
			"Keys without their body or their timer that the audit requested again, by cause. "+
				"Cause refused: not for the first time.",
			metric.Of("cause", wantindex.BodyLost, wantindex.Refused, wantindex.TimerLost, wantindex.StreamBehind)),
	}
}
