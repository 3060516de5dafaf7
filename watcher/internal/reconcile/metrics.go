package reconcile

import (
	"maps"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/process/metric"
)

// Metrics are the metrics of a Reconciler.
type Metrics struct {
	wants           *prometheus.CounterVec
	removals        prometheus.Counter
	syncs           prometheus.Counter
	stoppedRemovals prometheus.Gauge
	latency         prometheus.Histogram
	conflicts       prometheus.Counter
	events          *prometheus.CounterVec
	// EventsOverBudget counts Events that were not written at once.
	EventsOverBudget prometheus.Counter
}

// NewMetrics creates the metrics in the watcher's set.
func NewMetrics(set *metric.Set) *Metrics {
	return &Metrics{
		wants: set.Counters("wants_published_total", "Wants published to the stream of requests, by cause.",
			metric.Labeled("cause",
				pipeline.CauseName(v1.Cause_CAUSE_NEW), pipeline.CauseName(v1.Cause_CAUSE_CHANGED),
				pipeline.CauseName(v1.Cause_CAUSE_NOW),
				pipeline.CauseName(v1.Cause_CAUSE_DRIFT), pipeline.CauseName(v1.Cause_CAUSE_AUDIT), tombstone)),
		syncs: set.Counter("syncs_published_total",
			"Requests to the writer to bring status and keys of a ConfigMap in line with its annotations."),
		removals: set.Counter("removals_published_total",
			"Requests to the writer to remove a key whose pair is gone from the annotation."),
		stoppedRemovals: set.Gauge("stopped_removals",
			"Keys that are no longer asked for, but stay because too many would be removed at once."),
		latency: set.Histogram("publish_duration_seconds",
			"Time from the decision to publish a want to the acknowledgement of the stream.",
			prometheus.ExponentialBuckets(0.0005, 2, 14)),
		conflicts: set.Counter("publish_conflicts_total",
			"Publishes rejected because the subject had another message than expected."),
		events: set.Counters("events_emitted_total", "Events written for owners of ConfigMaps, by reason.",
			metric.Labeled("reason", slices.Sorted(maps.Keys(actions))...)),
		EventsOverBudget: set.Counter("events_over_budget_total",
			"Events delayed or dropped because their namespace exceeded its budget."),
	}
}

// Causes of messages that are not wants, in logs and traces.
const (
	tombstone   = "tombstone"
	syncRequest = "sync"
)
