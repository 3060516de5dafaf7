package engine

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kv8s/curl-me-that/fetcher/internal/egress"
	"github.com/kv8s/curl-me-that/fetcher/internal/get"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/process/metric"
)

const (
	// ok is the result of a GET that did not fail.
	ok = "ok"
	// full and broker are why a try to reach the broker failed: a stream is full, or
	// anything else.
	full   = "full"
	broker = "broker"
	// won and lost are the results of claims.
	won  = "won"
	lost = "lost"
)

// Metrics counts what an engine does. It also observes the phases of GETs.
type Metrics struct {
	requests    *prometheus.CounterVec
	gets        *prometheus.CounterVec
	phases      *prometheus.HistogramVec
	bodies      prometheus.Histogram
	notModified prometheus.Counter
	coalesced   prometheus.Counter
	parked      *prometheus.CounterVec
	claims      *prometheus.CounterVec
	retries     prometheus.Counter
	deadLetters *prometheus.CounterVec
	// deadLettersDropped are those above the budgets of namespaces.
	deadLettersDropped prometheus.Counter

	denials   *prometheus.CounterVec
	inFlight  prometheus.Gauge
	pushbacks *prometheus.CounterVec
	staleness prometheus.Histogram
}

var _ get.Observer = (*Metrics)(nil)

// NewMetrics makes the metrics in the set of the fetcher.
func NewMetrics(set *metric.Set) *Metrics {
	failures := getFailures()
	return &Metrics{
		requests: set.Counters("requests_total", "Messages handled, by outcome.", metric.Of("outcome", outcomes()...)),
		gets: set.Counters("gets_total", "GETs made, by result: ok, or the reason of the failure.",
			metric.Of("result", append([]string{ok}, failures...)...)),
		phases: set.Histograms("get_duration_seconds", "Duration of GETs, by phase; total is the whole, good or bad.",
			[]float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}, metric.Of("phase", get.Phases()...)),
		bodies:      set.Histogram("body_bytes", "Size of received bodies.", prometheus.ExponentialBuckets(64, 4, 8)),
		notModified: set.Counter("not_modified_total", "Answers 304 to conditional GETs."),
		coalesced:   set.Counter("coalesced_total", "Messages served by the GET of another one."),
		parked:      set.Counters("parked_total", "Attempts put off without a GET, by cause.", metric.Of("cause", parkCauses()...)),
		claims:      set.Counters("claims_total", "Waiting keys whose turn came, by result: won, or lost to an edit or another fetcher.", metric.Of("result", won, lost)),
		retries:     set.Counter("retries_total", "Attempts scheduled after a failure."),
		deadLetters: set.Counters("dead_letters_total", "Dead letters kept, by reason.", metric.Of("reason", append(failures,
			pipeline.Reason(v1.FailureClass_FAILURE_CLASS_DIGEST_MISMATCH), pipeline.Reason(v1.FailureClass_FAILURE_CLASS_POISON),
			pipeline.Reason(v1.FailureClass_FAILURE_CLASS_MALFORMED))...)),
		deadLettersDropped: set.Counter("dead_letters_dropped_total",
			"Dead letters not kept, since the namespace is over its budget of them or the stream took none; the failure was published."),
		denials: set.Counters("denials_total", "GETs that the egress policy denied, by the rule that did.",
			metric.Of("rule", egress.Rules()...)),
		inFlight: set.Gauge("in_flight_messages", "Messages in work."),
		pushbacks: set.Counters("pushbacks_total", "Tries to reach the broker that failed, by cause: full or broker.",
			metric.Of("cause", full, broker)),
		staleness: set.Histogram("staleness_seconds",
			"Time since a key should have been found up to date again, at each regular fetch of it, good or failed.",
			[]float64{1, 2, 5, 10, 30, 60, 300, 900, 3600, 6 * 3600, 24 * 3600}),
	}
}

// getFailures are the reasons why a GET can fail.
func getFailures() []string {
	var reasons []string
	for _, c := range []v1.FailureClass{
		v1.FailureClass_FAILURE_CLASS_ADDRESS_DENIED, v1.FailureClass_FAILURE_CLASS_DNS_FAILED,
		v1.FailureClass_FAILURE_CLASS_CONNECT_FAILED, v1.FailureClass_FAILURE_CLASS_TLS_FAILED,
		v1.FailureClass_FAILURE_CLASS_TIMEOUT, v1.FailureClass_FAILURE_CLASS_TOO_MANY_REDIRECTS,
		v1.FailureClass_FAILURE_CLASS_BAD_STATUS, v1.FailureClass_FAILURE_CLASS_BODY_TOO_LARGE,
		v1.FailureClass_FAILURE_CLASS_BAD_RESPONSE, v1.FailureClass_FAILURE_CLASS_CREDENTIALS_FAILED,
	} {
		reasons = append(reasons, pipeline.Reason(c))
	}
	return reasons
}

// ObservePhase implements get.Observer.
func (m *Metrics) ObservePhase(p get.Phase, d time.Duration) {
	m.phases.WithLabelValues(string(p)).Observe(d.Seconds())
}

// observeGet counts a GET.
func (m *Metrics) observeGet(r get.Response, err error) {
	if denied, is := errors.AsType[*egress.DeniedError](err); is {
		m.denials.WithLabelValues(string(denied.Rule)).Inc()
	}
	if err != nil {
		m.gets.WithLabelValues(pipeline.Reason(failureOf(err).Class)).Inc()
		return
	}
	m.gets.WithLabelValues(ok).Inc()
	if r.NotModified {
		m.notModified.Inc()
		return
	}
	m.bodies.Observe(float64(len(r.Body)))
}

// observeStaleness observes how long ago a regular fetch was due that is made now. A
// key that was never found well is not stale but waits.
func (m *Metrics) observeStaleness(t *trigger, now time.Time) {
	if !t.freshUntil.IsZero() {
		m.staleness.Observe(max(0, now.Sub(t.freshUntil)).Seconds())
	}
}

// observePushback counts a try to reach the broker that failed.
func (m *Metrics) observePushback(err error) {
	cause := broker
	if errors.Is(err, pipeline.ErrFull) {
		cause = full
	}
	m.pushbacks.WithLabelValues(cause).Inc()
}
