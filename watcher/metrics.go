package watcher

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kv8s/curl-me-that/proto/keystate"
	"github.com/kv8s/curl-me-that/proto/kube"
	"github.com/kv8s/curl-me-that/proto/pipeline"
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

// Metrics returns the definitions of the watcher's metrics, and of the pipeline's, which the leader
// exposes.
func Metrics() (own, pipeline []metric.Definition) {
	var c Config
	c.Election.Enabled, c.Election.Name = true, leader.DefaultName("watcher")
	m := newMetrics(prometheus.NewRegistry(), c)
	objects := informer.New(informer.Config{}, informer.Deps[*metav1.PartialObjectMetadata, *annotated.Object]{})
	m.measure(keys{
		objects: objects, object: objects.Get, index: wantindex.NewIndex(),
		notLanding: audit.New(0, audit.Deps{}).NotLanding, now: time.Now,
	}, exporter.New(0, exporter.Deps{}))
	return append(m.own.Definitions(), m.standard.Definitions()...), m.pipeline.Definitions()
}

type metrics struct {
	own, pipeline, standard *metric.Set

	reconciler *reconcile.Metrics
	sessions   *session.Metrics
	audit      *audit.Metrics
	calls      *kube.RequestMetrics
	events     *prometheus.CounterVec
	leader     prometheus.Gauge
	lease      prometheus.Gauge
}

func newMetrics(registry prometheus.Registerer, c Config) *metrics {
	m := &metrics{
		own: metric.New(registry, "watcher"), pipeline: metric.New(registry, "pipeline"), standard: metric.Standard(registry),
	}
	m.reconciler, m.sessions = reconcile.NewMetrics(m.own), session.NewMetrics(m.own, m.standard)
	m.audit = audit.NewMetrics(m.own)
	m.events = m.own.Counters("watch_events_total", "Events from the watch of ConfigMaps, by kind. A list is one event.",
		metric.Labeled("kind", informer.EventKinds()...))
	m.calls = kube.NewRequestMetrics(m.standard, "GET", "POST", "PUT")
	m.leader = m.own.Gauge("leader", "Whether this watcher publishes: 0 or 1. Without an election it is always 1.")
	m.lease = c.Election.Metric(m.standard)
	return m
}

// measure creates the metrics that are read on each scrape.
func (m *metrics) measure(k keys, e *exporter.Exporter) {
	objects := k.objects
	gauge := func(name, help string, count func() int) {
		m.own.GaugeFunc(name, help, func() float64 { return float64(count()) })
	}
	gauge("watched_objects", "ConfigMaps that the watch delivers.", objects.Watched)
	gauge("annotated_objects", "ConfigMaps with annotations, or with a status from earlier ones.", objects.Len)
	m.own.Families(k.count,
		metric.Definition{
			Name: "invalid_objects",
			Help: "ConfigMaps with invalid annotations, or beyond the quota of their namespace.",
		},
		metric.Definition{
			Name:   "keys",
			Help:   "Requested keys by state (see the diagram in architecture.md).",
			Labels: []metric.Label{metric.Labeled("state", keystate.States()...)},
		},
		metric.Definition{
			Name: "stale_keys", Help: "Keys without a good fetch for three of their intervals, whatever their state.",
		},
		metric.Definition{
			Name: "bad_keys",
			Help: "Keys that are failing, refused or contested, by namespace: the 20 with the most, and all others.",
			// Not "namespace": Prometheus sets that label to the namespace of the watcher.
			Labels: []metric.Label{{Name: "object_namespace", Open: "names of namespaces, `(others)`"}},
		})
	gauge("wanted_keys", "Keys with a want in the stream of requests, as known by the leader.", k.index.Len)
	m.own.GaugeFunc("watch_silence_seconds", "Time since the last response from the watch, of the slowest "+
		"namespace. A bookmark arrives about once a minute.",
		func() float64 { return objects.Silence().Seconds() })
	e.Measure(m.pipeline)
}

// keys are the requested keys of all objects.
type keys struct {
	objects *informer.Informer[*annotated.Object]
	// object returns an object within its quota.
	object func(types.NamespacedName) *annotated.Object
	index  *wantindex.Index
	// notLanding knows keys whose body does not land, without a trace in the status.
	notLanding func(pipeline.Key) (newest string, notLanding bool)
	now        func() time.Time
}

// count returns the numbers of invalid objects, of keys by state, of stale keys, and of failing keys by namespace. It
// holds no lock.
func (k keys) count() []map[string]float64 {
	states, failing := map[string]float64{}, map[string]float64{}
	invalid, stale := 0., 0.
	for _, state := range keystate.States() {
		states[string(state)] = 0
	}
	now := k.now()
	for _, name := range k.objects.Names() {
		o := k.object(name)
		if o == nil {
			continue
		}
		if o.Invalid != nil || o.Request.Rejects() {
			invalid++
		}
		for _, pair := range o.Request.Pairs {
			key, shown := wantindex.KeyOf(o.NamespacedName, pair.Key), o.View(pair.Key)
			var streams *keystate.Streams
			if w, found := k.index.Want(key); found {
				streams = &keystate.Streams{Wanted: true, WantedAt: w.At, Taken: true, Stale: w.Stale}
				streams.Newest, streams.NotLanding = k.notLanding(key)
			}
			c := keystate.Of(o.Spec(pair), &shown, streams, now)
			states[string(c.State)]++
			if c.Stale {
				stale++
			}
			if c.State.Bad() {
				failing[o.Namespace]++
			}
		}
	}
	keepMost(failing)
	return []map[string]float64{{"": invalid}, states, {"": stale}, failing}
}

const (
	// maxNamespaces is the maximum number of namespaces with a series of their own, because tenants may create any number.
	maxNamespaces = 20
	// otherNamespaces is the series of all others.
	otherNamespaces = "(others)"
)

// keepMost keeps the maxNamespaces namespaces with the most keys, and adds up the others.
func keepMost(counts map[string]float64) {
	most := slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(a, b))
	})
	for _, namespace := range most[min(len(most), maxNamespaces):] {
		counts[otherNamespaces] += counts[namespace]
		delete(counts, namespace)
	}
}

func (m *metrics) event(e informer.EventKind) { m.events.WithLabelValues(string(e)).Inc() }
