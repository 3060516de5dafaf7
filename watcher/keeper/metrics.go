package keeper

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/kv8s/curl-me-that/proto/kube"
	"github.com/kv8s/curl-me-that/proto/process/metric"
	watchv1 "github.com/kv8s/curl-me-that/proto/watch/v1alpha1"
	"github.com/kv8s/curl-me-that/watcher/internal/informer"
	"github.com/kv8s/curl-me-that/watcher/internal/leader"
	"github.com/kv8s/curl-me-that/watcher/keeper/internal/compile"
	"github.com/kv8s/curl-me-that/watcher/keeper/internal/credentials"
)

// queueName is the name of the queue in metrics.
const queueName = "keeper"

// Metrics returns the definitions of keeper's metrics.
func Metrics() []metric.Definition {
	var c Config
	c.Election.Enabled, c.Election.Name = true, leader.DefaultName(name)
	m := newMetrics(prometheus.NewRegistry(), c)
	m.measure(informer.New(informer.Config{}, informer.Deps[*watchv1.Watcher, *cachedWatcher]{}), time.Now)
	own := append(m.own.Definitions(), credentials.Metrics()...)
	return append(own, m.standard.Definitions()...)
}

// metrics are keeper's metrics.
type metrics struct {
	own, standard *metric.Set

	applies       *prometheus.CounterVec
	reports       prometheus.Counter
	calls         *kube.RequestMetrics
	queue         *kube.QueueMetrics
	leader, lease prometheus.Gauge
}

func newMetrics(registry prometheus.Registerer, c Config) *metrics {
	m := &metrics{own: metric.New(registry, name), standard: metric.Standard(registry)}
	m.applies = m.own.Counters("applies_total", "Applied ConfigMaps, by outcome (repaired: undid a change by others).",
		metric.Labeled("outcome", outcomeApplied, outcomeRepaired, outcomeRefused, outcomeFailed))
	m.reports = m.own.Counter("status_patches_total", "Writes of Watcher statuses.")
	m.leader = m.own.Gauge("leader", "Whether this keeper leads: 0 or 1. Always 1 without an election.")
	m.calls = kube.NewRequestMetrics(m.standard, "GET", "POST", "PUT", "PATCH")
	m.queue = kube.NewQueueMetrics(m.standard, queueName)
	m.lease = c.Election.Metric(m.standard)
	return m
}

// Outcomes of an apply in metrics.
const (
	outcomeApplied  = "applied"
	outcomeRepaired = "repaired"
	outcomeRefused  = "refused"
	outcomeFailed   = "failed"
)

// States of a Watcher in metrics.
const (
	stateReady       = "ready"
	stateProgressing = "progressing"
	stateStalled     = "stalled"
	stateSuspended   = "suspended"
)

// stateOf returns the state of a Watcher from its status.
func stateOf(w *cachedWatcher) string {
	switch {
	case w.Plan.Suspended:
		return stateSuspended
	case meta.IsStatusConditionTrue(w.Status.Conditions, watchv1.ConditionReady):
		return stateReady
	case meta.IsStatusConditionTrue(w.Status.Conditions, watchv1.ConditionStalled):
		return stateStalled
	}
	return stateProgressing
}

// measure creates the metrics that are computed on each scrape.
func (m *metrics) measure(watchers *informer.Informer[*cachedWatcher], now func() time.Time) {
	m.own.Families(func() []map[string]float64 { return count(watchers, now()) },
		metric.Definition{
			Name: "watchers", Help: "Watchers by state. Suspended ones count only as suspended.",
			Labels: []metric.Label{metric.Labeled("state", stateReady, stateProgressing, stateStalled, stateSuspended)},
		},
		metric.Definition{
			Name: "not_ready_seconds",
			Help: "Longest time that a Watcher which is not suspended has not been Ready, 0 if all are.",
		},
		metric.Definition{
			Name: "sidecars", Help: "Sidecars of pods by state, from the status of their Watchers.",
			Labels: []metric.Label{metric.Labeled("state", compile.Starting, compile.Ready, compile.Failing)},
		},
		metric.Definition{
			Name: "sidecars_outdated", Help: "Sidecars of an older generation than their Watcher's newest.",
		})
	m.own.GaugeFunc("watch_silence_seconds",
		"Time since the last response from the watch of Watchers, of the slowest namespace.",
		func() float64 { return watchers.Silence().Seconds() })
}

// count returns the number of Watchers by state, the longest time that one has not been Ready, and the numbers of
// sidecars by state and of outdated ones.
func count(watchers *informer.Informer[*cachedWatcher], now time.Time) []map[string]float64 {
	states := map[string]float64{stateReady: 0, stateProgressing: 0, stateStalled: 0, stateSuspended: 0}
	var pods watchv1.PodsStatus
	var notReady time.Duration
	watchers.Each(func(w *cachedWatcher) {
		state := stateOf(w)
		states[state]++
		if p := w.Status.Pods; p != nil {
			pods.Injected += p.Injected
			pods.Current += p.Current
			pods.Ready += p.Ready
			pods.Failing += p.Failing
		}
		if state == stateProgressing || state == stateStalled {
			since := w.Plan.Created
			if ready := meta.FindStatusCondition(w.Status.Conditions, watchv1.ConditionReady); ready != nil {
				since = ready.LastTransitionTime.Time
			}
			notReady = max(notReady, now.Sub(since))
		}
	})
	return []map[string]float64{
		states,
		{"": notReady.Seconds()},
		{
			string(compile.Starting): float64(pods.Injected - pods.Ready - pods.Failing),
			string(compile.Ready):    float64(pods.Ready),
			string(compile.Failing):  float64(pods.Failing),
		},
		{"": float64(pods.Injected - pods.Current)},
	}
}
