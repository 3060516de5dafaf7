package engine

import (
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"

	"github.com/kv8s/curl-me-that/fetcher/internal/egress"
	"github.com/kv8s/curl-me-that/fetcher/internal/get"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/failure"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/process/metric"
)

const (
	// getOK is the outcome of a successful GET.
	getOK = "ok"
	// streamFull and brokerFails are the reasons of failed publishes.
	streamFull  = "full"
	brokerFails = "broker"
	// claimWon and claimLost are the outcomes of claims.
	claimWon  = "won"
	claimLost = "lost"
)

// Metrics are the metrics of an engine.
type Metrics struct {
	messages           *prometheus.CounterVec
	gets               *prometheus.CounterVec
	phases             *prometheus.HistogramVec
	bodies             prometheus.Histogram
	notModified        prometheus.Counter
	coalesced          prometheus.Counter
	parked             *prometheus.CounterVec
	claims             *prometheus.CounterVec
	retries            prometheus.Counter
	deadLetters        *prometheus.CounterVec
	deadLettersDropped prometheus.Counter

	denials         *prometheus.CounterVec
	inFlight        prometheus.Gauge
	publishFailures *prometheus.CounterVec
	refreshDelay    prometheus.Histogram
}

// NewMetrics registers the metrics in the set of the fetcher.
func NewMetrics(set *metric.Set) *Metrics {
	var failures []string
	for _, c := range failure.GETFailures() {
		failures = append(failures, failure.Reason(c))
	}
	var waits []string
	for _, n := range slices.Sorted(maps.Keys(v1.WaitsFor_name))[1:] { // the first is unspecified
		waits = append(waits, pipeline.WaitsForName(v1.WaitsFor(n)))
	}
	return &Metrics{
		messages: set.Counters("messages_total", "Messages handled, by outcome.",
			metric.Labeled("outcome", slices.Sorted(maps.Keys(logLines))...)),
		gets: set.Counters("gets_total", "GETs made, by outcome: ok, or the reason of the failure.",
			metric.Labeled("outcome", append([]string{getOK}, failures...)...)),
		phases: set.Histograms("get_duration_seconds", "Duration of GETs by phase. The phase total includes failed ones.",
			[]float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}, metric.Labeled("phase", get.Phases()...)),
		bodies:      set.Histogram("body_bytes", "Size of received bodies.", prometheus.ExponentialBuckets(64, 4, 8)),
		notModified: set.Counter("not_modified_total", "304 responses to conditional GETs."),
		coalesced:   set.Counter("coalesced_total", "Messages that shared the GET of another one."),
		parked: set.Counters("parked_total", "Attempts parked without a GET.",
			metric.Labeled("waits_for", waits...)),
		claims: set.Counters("claims_total",
			"Claims of waiting keys, by outcome: won, or lost to an edit or another fetcher.",
			metric.Labeled("outcome", claimWon, claimLost)),
		retries: set.Counter("retries_total", "Retries scheduled after a failure."),
		deadLetters: set.Counters("dead_letters_total", "Dead letters published, by reason.",
			metric.Labeled("reason", append(failures, failure.Reason(failure.DigestMismatch),
				failure.Reason(failure.ContentRejected), failure.Reason(failure.Poison), failure.Reason(failure.Malformed))...)),
		deadLettersDropped: set.Counter("dead_letters_dropped_total",
			"Dead letters dropped because their namespace exceeded its budget or the stream rejected them."),
		denials: set.Counters("denials_total", "GETs denied by the egress policy, by rule.",
			metric.Labeled("rule", egress.Rules()...)),
		inFlight: set.Gauge("in_flight_messages", "Messages in flight."),
		publishFailures: set.Counters("publish_failures_total",
			"Failed publishes, by reason: the stream is full, or the broker fails.",
			metric.Labeled("reason", streamFull, brokerFails)),
		refreshDelay: set.Histogram("refresh_delay_seconds",
			"Delay of regular fetches, good or failed, after the key stopped being fresh.",
			[]float64{1, 2, 5, 10, 30, 60, 300, 900, 3600, 6 * 3600, 24 * 3600}),
	}
}

// observePhase observes a phase of a GET, whose end becomes an event of the span.
func (m *Metrics) observePhase(span trace.Span, p get.Phase, d time.Duration) {
	span.AddEvent(string(p))
	m.phases.WithLabelValues(string(p)).Observe(d.Seconds())
}

func (m *Metrics) observeGet(end attemptEnd) {
	if end.failure != nil {
		if denied, is := errors.AsType[*egress.DeniedError](&end.failure.Error); is {
			m.denials.WithLabelValues(string(denied.Rule)).Inc()
		}
		m.gets.WithLabelValues(failure.Reason(end.failure.Class)).Inc()
		return
	}
	m.gets.WithLabelValues(getOK).Inc()
	if end.response.NotModified {
		m.notModified.Inc()
		return
	}
	m.bodies.Observe(float64(len(end.response.Body)))
}

// observeRefreshDelay observes the delay of a regular fetch. A key without a successful fetch has none.
func (m *Metrics) observeRefreshDelay(t *trigger, now time.Time) {
	if t.due.GetFreshUntil() != nil {
		m.refreshDelay.Observe(max(0, now.Sub(t.due.GetFreshUntil().AsTime())).Seconds())
	}
}

// countPublishFailure counts a failed attempt to reach the broker.
func (m *Metrics) countPublishFailure(err error) {
	reason := brokerFails
	if errors.Is(err, pipeline.ErrFull) {
		reason = streamFull
	}
	m.publishFailures.WithLabelValues(reason).Inc()
}
