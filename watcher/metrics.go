package watcher

import (
	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/process/kube"
	"github.com/kv8s/curl-me-that/proto/process/metric"
	"github.com/kv8s/curl-me-that/watcher/internal/annotated"
	"github.com/kv8s/curl-me-that/watcher/internal/audit"
	"github.com/kv8s/curl-me-that/watcher/internal/exporter"
	"github.com/kv8s/curl-me-that/watcher/internal/informer"
	"github.com/kv8s/curl-me-that/watcher/internal/leader"
	"github.com/kv8s/curl-me-that/watcher/internal/plan"
	"github.com/kv8s/curl-me-that/watcher/internal/reconcile"
	"github.com/kv8s/curl-me-that/watcher/internal/wantindex"
)

// Metrics returns the definitions of the watcher's metrics, and of the pipeline's, which the leader
// exposes.
func Metrics() (own, pipeline []metric.Definition) {
	var c Config
	c.Election.Enabled, c.Election.Name = true, leader.DefaultName("watcher")
	m := newMetrics(prometheus.NewRegistry(), c)
	m.measure(informer.New(informer.Config{}, informer.Deps[*metav1.PartialObjectMetadata, *annotated.Object]{}),
		wantindex.NewIndex(), audit.New(0, audit.Deps{}), exporter.New(exporter.Config{}, exporter.Deps{}))
	return append(m.own.Definitions(), m.standard.Definitions()...), m.pipeline.Definitions()
}

type metrics struct {
	own, pipeline, standard *metric.Set

	reconciler *reconcile.Metrics
	audit      *audit.Metrics
	calls      *kube.Calls
	events     *prometheus.CounterVec
	session    *reconcile.RunnerMetrics
	leader     prometheus.Gauge
	lease      prometheus.Gauge
}

func newMetrics(registry prometheus.Registerer, c Config) *metrics {
	m := &metrics{
		own: metric.New(registry, "watcher"), pipeline: metric.New(registry, "pipeline"), standard: metric.Standard(registry),
	}
	m.reconciler = reconcile.NewMetrics(m.own)
	m.audit = audit.NewMetrics(m.own)
	m.events = m.own.Counters("watch_events_total", "Events from the watch of ConfigMaps, by kind. A list is one event.",
		metric.Of("kind", informer.Events()...))
	m.calls = kube.NewCalls(m.standard, "GET", "POST", "PUT")
	m.session = reconcile.NewRunnerMetrics(m.own, m.standard)
	m.leader = m.own.Gauge("leader", "Whether this watcher publishes: 0 or 1. Without an election it is always 1.")
	m.lease = c.Election.Metric(m.standard)
	return m
}

// measure creates the metrics that are read on each scrape.
func (m *metrics) measure(objects *informer.Informer[*annotated.Object], index *wantindex.Index, auditor *audit.Auditor,
	e *exporter.Exporter,
) {
	gauge := func(name, help string, count func() int) {
		m.own.GaugeFunc(name, help, func() float64 { return float64(count()) })
	}
	gauge("watched_objects", "ConfigMaps that the watch delivers.", objects.Watched)
	gauge("annotated_objects", "ConfigMaps with annotations, or with a status from earlier ones.", objects.Len)
	gauge("invalid_objects", "ConfigMaps with invalid annotations.", func() (n int) {
		objects.Each(func(o *annotated.Object) {
			if o.Invalid != nil || o.AsChecked().Request.Refuses() {
				n++
			}
		})
		return n
	})
	m.own.GaugesFunc("keys", "Requested keys by state. Failing and refused ones may hold their last good value, "+
		"contested ones hold a value of another field manager.",
		metric.Of("state", keyOK, keyFailing, keyPending, keyContested, keyRefused),
		func() map[string]float64 { return keysByState(objects, auditor.Refused) })
	gauge("wanted_keys", "Keys with a want in the stream of requests, as known by the leader.", index.Len)
	m.own.GaugeFunc("watch_silence_seconds", "Time since the last response from the watch, of the slowest "+
		"namespace. A bookmark arrives about once a minute.",
		func() float64 { return objects.Silence().Seconds() })
	e.Measure(m.pipeline)
}

// States of a key in metrics.
const (
	keyOK        = "ok"
	keyFailing   = "failing"
	keyPending   = "pending"
	keyContested = "contested"
	keyRefused   = "refused"
)

// keysByState counts the requested keys of all objects. The audit knows keys whose body was refused without a trace in
// the status.
func keysByState(
	objects *informer.Informer[*annotated.Object], refused func(pipeline.Key) bool,
) map[string]float64 {
	counts := map[string]float64{keyOK: 0, keyFailing: 0, keyPending: 0, keyContested: 0, keyRefused: 0}
	objects.Each(func(o *annotated.Object) {
		o = o.AsChecked()
		for _, pair := range o.Request.Pairs {
			switch entry := o.Status.Of(pair.Key); {
			case entry.Refused(), refused(wantindex.KeyOf(o.NamespacedName, pair.Key)):
				counts[keyRefused]++
			case entry.Failing():
				counts[keyFailing]++
			case !entry.Copied(o.UID) && entry.Contested(o.Owner(pair.Key)):
				counts[keyContested]++
			case plan.HoldingOf(o, pair) == plan.Held:
				counts[keyOK]++
			default:
				counts[keyPending]++
			}
		}
	})
	return counts
}

func (m *metrics) event(e informer.Event) { m.events.WithLabelValues(string(e)).Inc() }
