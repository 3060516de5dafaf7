package keeper

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kv8s/curl-me-that/proto/process/kube"
	"github.com/kv8s/curl-me-that/proto/process/metric"
	watchv1 "github.com/kv8s/curl-me-that/proto/watch/v1alpha1"
	"github.com/kv8s/curl-me-that/watcher/internal/informer"
	"github.com/kv8s/curl-me-that/watcher/internal/leader"
	"github.com/kv8s/curl-me-that/watcher/keeper/internal/plan"
	"github.com/kv8s/curl-me-that/watcher/keeper/internal/reconcile"
)

// queueName is the name of the queue in metrics.
const queueName = "keeper"

// Metrics returns the definitions of keeper's metrics.
func Metrics() []metric.Definition {
	var c Config
	c.Election.Enabled, c.Election.Name = true, leader.DefaultName(name)
	m := newMetrics(prometheus.NewRegistry(), c)
	m.measure(informer.New(informer.Config{}, informer.Deps[*watchv1.Watcher, *reconcile.Watcher]{}), time.Now)
	own := append(m.own.Definitions(), newTeamMetrics(prometheus.NewRegistry()).own.Definitions()...)
	return append(own, m.standard.Definitions()...)
}

// teamMetrics are the metrics of keeper --credentials.
type teamMetrics struct {
	own, standard *metric.Set
	calls         *kube.Calls
	problems      prometheus.Gauge
	compiled      prometheus.Gauge
}

func newTeamMetrics(registry prometheus.Registerer) teamMetrics {
	m := teamMetrics{own: metric.New(registry, name), standard: metric.Standard(registry)}
	m.calls = kube.NewCalls(m.standard, "GET", "POST", "PATCH")
	m.problems = m.own.Gauge("credentials_problems",
		"With --credentials: Secrets that are ignored, namespaces that cannot be read, and a failed write.")
	m.compiled = m.own.Gauge("credentials_timestamp_seconds",
		"With --credentials: when the compiled Secret was last up to date.")
	return m
}

// metrics are keeper's metrics.
type metrics struct {
	own, standard *metric.Set

	reconciler *reconcile.Metrics
	calls      *kube.Calls
	queue      *kube.QueueMetrics
	leader     prometheus.Gauge
	lease      prometheus.Gauge
}

func newMetrics(registry prometheus.Registerer, c Config) *metrics {
	m := &metrics{own: metric.New(registry, name), standard: metric.Standard(registry)}
	m.reconciler = reconcile.NewMetrics(m.own)
	m.leader = m.own.Gauge("leader", "Whether this keeper leads: 0 or 1. Always 1 without an election.")
	m.calls = kube.NewCalls(m.standard, "GET", "POST", "PUT", "PATCH")
	m.queue = kube.NewQueueMetrics(m.standard, queueName)
	m.lease = c.Election.Metric(m.standard)
	return m
}

// States of a Watcher in metrics.
const (
	stateReady       = "ready"
	stateProgressing = "progressing"
	stateStalled     = "stalled"
	stateSuspended   = "suspended"
)

// stateOf returns the state of a Watcher from its status.
func stateOf(w *reconcile.Watcher) string {
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
func (m *metrics) measure(watchers *informer.Informer[*reconcile.Watcher], now func() time.Time) {
	m.own.GaugesFunc("watchers", "Watchers by state. Suspended ones count only as suspended.",
		metric.Of("state", stateReady, stateProgressing, stateStalled, stateSuspended), func() map[string]float64 {
			counts := map[string]float64{stateReady: 0, stateProgressing: 0, stateStalled: 0, stateSuspended: 0}
			watchers.Each(func(w *reconcile.Watcher) { counts[stateOf(w)]++ })
			return counts
		})
	m.own.GaugeFunc("not_ready_seconds",
		"Longest time that a Watcher which is not suspended has not been Ready, 0 if all are.",
		func() float64 { return notReady(watchers, now()).Seconds() })
	m.own.GaugesFunc("sidecars", "Sidecars of pods by state, from the status of their Watchers.",
		metric.Of("state", plan.Starting, plan.Ready, plan.Failing),
		func() map[string]float64 { return sidecars(watchers) })
	m.own.GaugeFunc("sidecars_outdated", "Sidecars of an older generation than their Watcher's newest.", func() float64 {
		outdated := int64(0)
		watchers.Each(func(w *reconcile.Watcher) {
			if p := w.Status.Pods; p != nil {
				outdated += p.Injected - p.Current
			}
		})
		return float64(outdated)
	})
	m.own.GaugeFunc("watch_silence_seconds",
		"Time since the last response from the watch of Watchers, of the slowest namespace.",
		func() float64 { return watchers.Silence().Seconds() })
}

// sidecars counts the sidecars of all Watchers by state.
func sidecars(watchers *informer.Informer[*reconcile.Watcher]) map[string]float64 {
	var total watchv1.PodsStatus
	watchers.Each(func(w *reconcile.Watcher) {
		if p := w.Status.Pods; p != nil {
			total.Injected += p.Injected
			total.Ready += p.Ready
			total.Failing += p.Failing
		}
	})
	return map[string]float64{
		string(plan.Starting): float64(total.Injected - total.Ready - total.Failing),
		string(plan.Ready):    float64(total.Ready),
		string(plan.Failing):  float64(total.Failing),
	}
}

// notReady returns how long the Watcher with the longest outage has not been Ready.
func notReady(watchers *informer.Informer[*reconcile.Watcher], now time.Time) time.Duration {
	longest := time.Duration(0)
	watchers.Each(func(w *reconcile.Watcher) {
		ready := meta.FindStatusCondition(w.Status.Conditions, watchv1.ConditionReady)
		if w.Plan.Suspended || ready != nil && ready.Status == metav1.ConditionTrue {
			return
		}
		since := w.Plan.Created
		if ready != nil {
			since = ready.LastTransitionTime.Time
		}
		longest = max(longest, now.Sub(since))
	})
	return longest
}
