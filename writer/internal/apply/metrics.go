package apply

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kv8s/curl-me-that/proto/budget"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/process/metric"
	"github.com/kv8s/curl-me-that/writer/internal/apiserver"
	"github.com/kv8s/curl-me-that/writer/internal/plan"
)

// Metrics are the metrics of applying results.
type Metrics struct {
	// messages counts messages by their disposition.
	messages *prometheus.CounterVec
	inFlight prometheus.Gauge
	// results counts acknowledged results by outcome.
	results   *prometheus.CounterVec
	patches   *prometheus.CounterVec
	reads     *prometheus.CounterVec
	exhausted prometheus.Counter
	// overBudget counts patches that were not sent.
	overBudget *prometheus.CounterVec
	// events counts written Events.
	events *prometheus.CounterVec
	// EventsOverBudget counts Events that were dropped.
	EventsOverBudget prometheus.Counter
	// versions counts bodies for the history.
	versions *prometheus.CounterVec
	batch    prometheus.Histogram
	seconds  prometheus.Histogram
	age      prometheus.Histogram
	delivery prometheus.Histogram
}

// NewMetrics registers the metrics in the set of the writer.
func NewMetrics(set *metric.Set) *Metrics {
	set.GaugeFunc("in_flight_limit_messages", "Maximum number of messages in flight.",
		func() float64 { return MaxMessages })
	latency := []float64{.002, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30}
	return &Metrics{
		messages: set.Counters("messages_total", "Messages taken off the queue, by outcome.",
			metric.Labeled("outcome", pipeline.Dispositions()...)),
		inFlight: set.Gauge("in_flight_messages", "Messages in flight."),
		results: set.Counters("results_total", "Results acknowledged, by outcome.",
			metric.Labeled("outcome", plan.Outcomes()...)),
		patches: set.Counters("patches_total", "Patches sent, by outcome.",
			metric.Labeled("outcome", apiserver.Classes()...)),
		reads: set.Counters("reads_total", "Reads of ConfigMaps, by how much was read.",
			metric.Labeled("kind", kindMetadata, kindObject)),
		exhausted: set.Counter("conflicts_exhausted_total",
			"Batches deferred because their object changed faster than it could be patched."),
		overBudget: set.Counters("over_budget_total",
			"Patches deferred because their namespace exceeded a budget, by budget.",
			metric.Labeled("budget", budget.Writes, budget.WriteBytes)),
		versions: set.Counters("versions_total", "Bodies for the history, by outcome.",
			metric.Labeled("outcome", versionKept, versionFailed, versionOverShare, versionCredential, versionPaused)),
		batch: set.Histogram("batch_messages", "Messages applied together.", []float64{1, 2, 4, 8, 16, 32, 64, 128}),
		seconds: set.Histogram("apply_duration_seconds", "Time to apply a batch, including requests to the API server.",
			latency),
		age: set.Histogram("result_age_seconds", "Age of a result when it was acknowledged, from the end of its fetch.",
			latency),
		delivery: set.Histogram("annotation_to_data_seconds",
			"Time from the change of an annotation to the patch with the first data for it.",
			append(latency, 60, 300, 900, 3600)),
		events: set.Counters("events_emitted_total", "Events written for owners of ConfigMaps, by reason.",
			metric.Labeled("reason", plan.Reasons()...)),
		EventsOverBudget: set.Counter("events_over_budget_total",
			"Events delayed or dropped because their namespace exceeded its budget."),
	}
}

// Kinds of reads of a ConfigMap.
const (
	kindMetadata = "metadata"
	kindObject   = "object"
)

// observe counts a result that is acknowledged.
func (a *Applier) observe(v plan.Outcome, r *v1.Result) {
	a.deps.Metrics.results.WithLabelValues(string(v)).Inc()
	if at := r.GetObservedAt(); at != nil {
		a.deps.Metrics.age.Observe(max(0, time.Since(at.AsTime()).Seconds()))
	}
	asked := r.GetWant().GetAskedAt()
	if v == plan.Written && r.GetContent() != nil && !r.GetAnswered() && asked != nil {
		a.deps.Metrics.delivery.Observe(max(0, time.Since(asked.AsTime()).Seconds()))
	}
}
