package reconcile

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/kv8s/curl-me-that/proto/process/metric"
)

// outcome is the outcome of an apply.
type outcome string

const (
	outcomeApplied  outcome = "applied"
	outcomeRepaired outcome = "repaired"
	outcomeRefused  outcome = "refused"
	outcomeFailed   outcome = "failed"
)

// Metrics are the metrics of a Reconciler.
type Metrics struct {
	applies *prometheus.CounterVec
	reports prometheus.Counter
}

// NewMetrics creates the metrics.
func NewMetrics(set *metric.Set) *Metrics {
	return &Metrics{
		applies: set.Counters("applies_total", "Applied ConfigMaps, by outcome (repaired: undid a change by others).",
			metric.Of("outcome", outcomeApplied, outcomeRepaired, outcomeRefused, outcomeFailed)),
		reports: set.Counter("status_patches_total", "Writes of Watcher statuses."),
	}
}

func (m *Metrics) apply(o outcome) { m.applies.WithLabelValues(string(o)).Inc() }
