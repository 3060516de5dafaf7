package watcher

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kv8s/curl-me-that/proto/process/kube"
	"github.com/kv8s/curl-me-that/proto/process/metric"
	"github.com/kv8s/curl-me-that/watcher/internal/annotated"
	"github.com/kv8s/curl-me-that/watcher/internal/audit"
	"github.com/kv8s/curl-me-that/watcher/internal/exporter"
	"github.com/kv8s/curl-me-that/watcher/internal/informer"
	"github.com/kv8s/curl-me-that/watcher/internal/leader"
	"github.com/kv8s/curl-me-that/watcher/internal/reconcile"
	"github.com/kv8s/curl-me-that/watcher/internal/session"
	"github.com/kv8s/curl-me-that/watcher/internal/wantindex"
)

// Metrics returns what the metrics of a watcher are, and those of the pipeline,
// which the watcher shows that leads.
func Metrics() (own, pipeline []metric.Definition) {
	var c Config
	c.Election.Enabled, c.Election.Name = true, leader.DefaultName("watcher")
	m := newMetrics(prometheus.NewRegistry(), c)
	m.measure(informer.New(informer.Config{}, informer.Deps[*metav1.PartialObjectMetadata, *annotated.Object]{}), wantindex.NewIndex(), exporter.New(exporter.Config{}, exporter.Deps{}))
	return append(m.own.Definitions(), m.standard.Definitions()...), m.pipeline.Definitions()
}

// metrics of a watcher.
type metrics struct {
	own, pipeline, standard *metric.Set

	reconciler *reconcile.Metrics
	audit      *audit.Metrics
	calls      *kube.Calls
	queue      *kube.QueueMetrics
	events     *prometheus.CounterVec
	sessions   prometheus.Counter
	purges     prometheus.Counter
	outOfScope prometheus.Gauge
	leader     prometheus.Gauge
	lease      prometheus.Gauge
}

func newMetrics(registry prometheus.Registerer, c Config) *metrics {
	m := &metrics{
		own: metric.New(registry, "watcher"), pipeline: metric.New(registry, "pipeline"), standard: metric.Standard(registry),
	}
	m.reconciler = reconcile.NewMetrics(m.own)
	m.audit = audit.NewMetrics(m.own)
	m.events = m.own.Counters("watch_events_total", "What the watch of ConfigMaps has delivered, by kind; list: all objects at once.",
		metric.Of("kind", informer.Events()...))
	m.sessions = m.own.Counter("sessions_total", "How often the stream of requests was read anew.")
	m.purges = m.own.Counter("purges_total", "How often wants were gone from the stream of requests that no other client may take out; it is filled again at once.")
	m.outOfScope = m.own.Gauge("out_of_scope_wants", "Wants of namespaces that are not watched and that this installation has not published, when the stream of requests was last read. They are left as they are.")
	m.leader = m.own.Gauge("leader", "Whether this watcher publishes: 0 or 1. It does so always when there is no election.")
	m.calls = kube.NewCalls(m.standard, "GET", "POST", "PUT")
	m.queue = kube.NewQueueMetrics(m.standard, session.QueueName)
	m.lease = c.Election.Metric(m.standard)
	return m
}

// measure makes the metrics that are read when they are asked for.
func (m *metrics) measure(objects *informer.Informer[*annotated.Object], index *wantindex.Index, e *exporter.Exporter) {
	gauge := func(name, help string, count func() int) {
		m.own.GaugeFunc(name, help, func() float64 { return float64(count()) })
	}
	gauge("watched_objects", "ConfigMaps in the sight of the watch.", objects.Watched)
	gauge("annotated_objects", "ConfigMaps in the cluster that ask for something, or that were once written.", objects.Len)
	gauge("invalid_objects", "ConfigMaps whose annotations cannot be read.", func() (n int) {
		objects.Each(func(o *annotated.Object) {
			if o.Invalid != nil || o.Request.Refuses() {
				n++
			}
		})
		return n
	})
	gauge("wanted_keys", "Keys that the stream of requests has a want for, as the watcher that publishes knows.", index.Len)
	m.own.GaugeFunc("watch_silence_seconds", "Time since the watch last gave a sign of life, of the namespace that is worst off; a bookmark comes about once a minute.",
		func() float64 { return objects.Silence().Seconds() })
	e.Measure(m.pipeline)
}

// event counts what a watch delivers.
func (m *metrics) event(e informer.Event) { m.events.WithLabelValues(string(e)).Inc() }

func (m *metrics) err() error { return errors.Join(m.own.Err(), m.pipeline.Err(), m.standard.Err()) }
