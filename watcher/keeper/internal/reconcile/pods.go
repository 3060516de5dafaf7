package reconcile

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kv8s/curl-me-that/watcher/internal/informer"
	"github.com/kv8s/curl-me-that/watcher/keeper/internal/plan"
)

// PodsPause is the minimum interval between two counts of a Watcher's pods.
const PodsPause = time.Second

// Pods are the pods with sidecars of Watchers.
type Pods struct {
	Store *informer.Informer[*plan.Pod]
	// ByWatcher finds pods by the Watchers whose sidecars they have.
	ByWatcher *Index
}

// counted has the states of a Watcher's pods at the last count.
type counted struct {
	at     time.Time
	wanted plan.Wanted
	count  plan.Count
}

// of returns the pods with a sidecar of a Watcher, sorted, and whether the pods are listed.
func (p *Pods) of(watcher types.NamespacedName) ([]*plan.Pod, bool) {
	if !p.Store.Listed(watcher.Namespace) {
		return nil, false
	}
	var pods []*plan.Pod
	for _, name := range p.ByWatcher.Of(watcher) {
		if pod := p.Store.Get(name); pod != nil {
			pods = append(pods, pod)
		}
	}
	return pods, true
}

// observe counts the pods with the sidecar and logs transitions since the last count. It returns the time
// until the next count (0: on the next change). The status stays the same until pods are listed.
func (r *Reconciler) observe(in *plan.Input, m *memory) time.Duration {
	if r.deps.Pods == nil {
		return 0
	}
	pods, listed := r.deps.Pods.of(in.Plan.Watcher)
	if !listed {
		if in.Previous.Pods != nil {
			in.Pods = &plan.Count{PodsStatus: *in.Previous.Pods}
		}
		return 0
	}
	if len(pods) == 0 && m.counted == nil && in.Plan.Sidecar == nil && in.Previous.Pods == nil {
		return 0 // like most Watchers
	}
	wanted := plan.Wanted{Watcher: in.Plan.Watcher.Name, Generation: in.Plan.Generation}
	if in.Plan.Sidecar != nil {
		wanted.Container = in.Plan.Sidecar.Container.Name
	}
	before := m.counted
	if before != nil && before.wanted == wanted {
		if wait := PodsPause - in.Now.Sub(before.at); wait > 0 {
			in.Pods = &before.count // otherwise each status write triggers a count
			return wait
		}
	}
	m.counted = &counted{at: in.Now, wanted: wanted, count: plan.CountPods(wanted, pods, in.Now)}
	if before != nil {
		r.logTransitions(in.Plan, before.count.Pods, m.counted.count.Pods)
	}
	in.Pods = &m.counted.count
	return m.counted.count.Again
}

// logTransitions logs each pod that is new or gone, or whose sidecar changed state.
func (r *Reconciler) logTransitions(p *plan.Plan, before, after map[types.NamespacedName]plan.PodState) {
	log := func(pod types.NamespacedName, s plan.PodState, message string) {
		r.deps.Log.Info().Str("watcher", p.Watcher.String()).Str("pod", pod.String()).
			Int64("generation", s.Generation).Str("state", string(s.State)).Str("reason", s.Reason).Msg(message)
	}
	for pod, now := range after {
		was, known := before[pod]
		if !known {
			log(pod, now, "pod injected")
			was.State = plan.Starting
		}
		if was.State != now.State {
			log(pod, now, map[plan.State]string{
				plan.Starting: "sidecar not ready", plan.Ready: "sidecar ready", plan.Failing: "sidecar failing",
			}[now.State])
		}
	}
	for pod, was := range before {
		if _, still := after[pod]; !still {
			was.Reason = ""
			log(pod, was, "pod gone")
		}
	}
}
