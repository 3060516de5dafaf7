package reconcile

import (
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
)

// Metrics of the reconciler.
type Metrics struct {
	wants     *prometheus.CounterVec
	latency   prometheus.Histogram
	conflicts prometheus.Counter
	notices   *prometheus.CounterVec
}

// NewMetrics registers the metrics.
func NewMetrics(reg prometheus.Registerer) (*Metrics, error) {
	m := &Metrics{
		wants: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "curlmethat_watcher_wants_published_total",
			Help: "Wants published to the stream of requests, by cause.",
		}, []string{"cause"}),
		latency: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:                        "curlmethat_watcher_publish_duration_seconds",
			Help:                        "Time from the decision to publish a want to the acknowledgement of the stream.",
			Buckets:                     prometheus.ExponentialBuckets(0.0005, 2, 14),
			NativeHistogramBucketFactor: 1.1,
		}),
		conflicts: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "curlmethat_watcher_publish_conflicts_total",
			Help: "Publishes refused because the subject held another message than expected.",
		}),
		notices: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "curlmethat_watcher_notices_total",
			Help: "Changes of state told to owners of ConfigMaps as Events, by reason.",
		}, []string{"reason"}),
	}
	for _, c := range []prometheus.Collector{m.wants, m.latency, m.conflicts, m.notices} {
		if err := reg.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

func (m *Metrics) published(w *v1.Want, took time.Duration) {
	m.wants.WithLabelValues(strings.ToLower(strings.TrimPrefix(w.GetCause().String(), "CAUSE_"))).Inc()
	m.latency.Observe(took.Seconds())
}

func (m *Metrics) retracted() { m.wants.WithLabelValues("tombstone").Inc() }

func (m *Metrics) conflict() { m.conflicts.Inc() }

func (m *Metrics) noticed(reason string) { m.notices.WithLabelValues(reason).Inc() }
