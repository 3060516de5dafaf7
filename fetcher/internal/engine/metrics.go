package engine

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kv8s/curl-me-that/fetcher/internal/get"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

const (
	namespace = "curlmethat"
	subsystem = "fetcher"
)

// Metrics counts what an engine does. Its labels are closed sets; it also
// observes the phases of GETs.
type Metrics struct {
	requests    *prometheus.CounterVec
	gets        *prometheus.CounterVec
	phases      *prometheus.HistogramVec
	bodies      prometheus.Histogram
	notModified prometheus.Counter
	coalesced   prometheus.Counter
	parked      *prometheus.CounterVec
	retries     prometheus.Counter
	deadLetters *prometheus.CounterVec
	inFlight    prometheus.Gauge
	pushbacks   *prometheus.CounterVec
}

var (
	_ get.Observer         = (*Metrics)(nil)
	_ prometheus.Collector = (*Metrics)(nil)
)

// NewMetrics registers the metrics.
func NewMetrics(registry prometheus.Registerer) (*Metrics, error) {
	m := &Metrics{
		requests: counters("requests_total", "Messages handled, by outcome.", "outcome"),
		gets:     counters("gets_total", "GETs made, by result: ok, or the reason of the failure.", "result"),
		phases: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: namespace, Subsystem: subsystem, Name: "get_duration_seconds",
			Help:    "Duration of GETs, by phase.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10},
		}, []string{"phase"}),
		bodies: prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: namespace, Subsystem: subsystem, Name: "body_bytes",
			Help:    "Size of received bodies.",
			Buckets: prometheus.ExponentialBuckets(64, 4, 8),
		}),
		notModified: counter("not_modified_total", "Answers 304 to conditional GETs."),
		coalesced:   counter("coalesced_total", "Messages served by the GET of another one."),
		parked:      counters("parked_total", "Attempts put off without a GET, by cause.", "cause"),
		retries:     counter("retries_total", "Attempts scheduled after a failure."),
		deadLetters: counters("dead_letters_total", "Dead letters kept, by reason.", "reason"),
		inFlight: prometheus.NewGauge(prometheus.GaugeOpts{
			Namespace: namespace, Subsystem: subsystem, Name: "in_flight_messages",
			Help: "Messages in work.",
		}),
		pushbacks: counters("pushbacks_total", "Tries to reach the broker that failed, by cause: full or broker.", "cause"),
	}
	m.initialize()
	return m, registry.Register(m)
}

func (m *Metrics) all() []prometheus.Collector {
	return []prometheus.Collector{
		m.requests, m.gets, m.phases, m.bodies, m.notModified, m.coalesced,
		m.parked, m.retries, m.deadLetters, m.inFlight, m.pushbacks,
	}
}

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(descriptions chan<- *prometheus.Desc) {
	for _, c := range m.all() {
		c.Describe(descriptions)
	}
}

// Collect implements prometheus.Collector.
func (m *Metrics) Collect(metrics chan<- prometheus.Metric) {
	for _, c := range m.all() {
		c.Collect(metrics)
	}
}

// initialize makes every label value show from the start, so that a rate has
// a zero to begin with.
func (m *Metrics) initialize() {
	for _, o := range outcomes() {
		m.requests.WithLabelValues(string(o))
	}
	for _, c := range parkCauses() {
		m.parked.WithLabelValues(string(c))
	}
	m.gets.WithLabelValues("ok")
	for _, c := range []v1.FailureClass{
		v1.FailureClass_FAILURE_CLASS_ADDRESS_DENIED, v1.FailureClass_FAILURE_CLASS_DNS_FAILED,
		v1.FailureClass_FAILURE_CLASS_CONNECT_FAILED, v1.FailureClass_FAILURE_CLASS_TLS_FAILED,
		v1.FailureClass_FAILURE_CLASS_TIMEOUT, v1.FailureClass_FAILURE_CLASS_TOO_MANY_REDIRECTS,
		v1.FailureClass_FAILURE_CLASS_BAD_STATUS, v1.FailureClass_FAILURE_CLASS_BODY_TOO_LARGE,
		v1.FailureClass_FAILURE_CLASS_BAD_RESPONSE,
	} {
		m.gets.WithLabelValues(pipeline.Reason(c))
		m.deadLetters.WithLabelValues(pipeline.Reason(c))
	}
	for _, c := range []v1.FailureClass{
		v1.FailureClass_FAILURE_CLASS_DIGEST_MISMATCH, v1.FailureClass_FAILURE_CLASS_POISON,
		v1.FailureClass_FAILURE_CLASS_MALFORMED,
	} {
		m.deadLetters.WithLabelValues(pipeline.Reason(c))
	}
	m.pushbacks.WithLabelValues("full")
	m.pushbacks.WithLabelValues("broker")
}

// ObservePhase implements get.Observer.
func (m *Metrics) ObservePhase(p get.Phase, d time.Duration) {
	m.phases.WithLabelValues(string(p)).Observe(d.Seconds())
}

// got counts a GET.
func (m *Metrics) got(r get.Response, err error) {
	if err != nil {
		m.gets.WithLabelValues(pipeline.Reason(failureOf(err).Class)).Inc()
		return
	}
	m.gets.WithLabelValues("ok").Inc()
	if r.Status == get.NotModified {
		m.notModified.Inc()
		return
	}
	m.bodies.Observe(float64(len(r.Body)))
}

// blocked counts a try to reach the broker that failed.
func (m *Metrics) blocked(err error) {
	cause := "broker"
	if errors.Is(err, pipeline.ErrFull) {
		cause = "full"
	}
	m.pushbacks.WithLabelValues(cause).Inc()
}

func counter(name, help string) prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts{Namespace: namespace, Subsystem: subsystem, Name: name, Help: help})
}

func counters(name, help, label string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(
		prometheus.CounterOpts{Namespace: namespace, Subsystem: subsystem, Name: name, Help: help}, []string{label})
}
