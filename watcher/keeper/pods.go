package keeper

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kv8s/curl-me-that/watcher/keeper/internal/compile"
)

// podsPause is the minimum interval between two counts of a Watcher's pods.
const podsPause = time.Second

// counted has the states of a Watcher's pods at the last count.
type counted struct {
	at         time.Time
	generation int64
	count      compile.Count
}

// observe counts the pods with the sidecar and logs transitions since the last count. It returns the time
// until the next count (0: on the next change). The status stays the same until pods are listed.
func (k *keeper) observe(in *compile.Input, m *memory) time.Duration {
	if !k.config.Sidecars {
		return 0
	}
	if !k.pods.Listed(in.Plan.Watcher.Namespace) {
		if in.Previous.Pods != nil {
			in.Pods = &compile.Count{PodsStatus: *in.Previous.Pods}
		}
		return 0
	}
	var pods []*compile.Pod
	for _, name := range k.injected.of(in.Plan.Watcher) {
		if pod := k.pods.Get(name); pod != nil {
			pods = append(pods, pod)
		}
	}
	if len(pods) == 0 && m.counted == nil && in.Plan.Sidecar == nil && in.Previous.Pods == nil {
		return 0 // like most Watchers
	}
	before := m.counted
	if before != nil && before.generation == in.Plan.Generation {
		if wait := podsPause - in.Now.Sub(before.at); wait > 0 {
			in.Pods = &before.count // otherwise each status write triggers a count
			return wait
		}
	}
	m.counted = &counted{at: in.Now, generation: in.Plan.Generation, count: compile.CountPods(in.Plan, pods, in.Now)}
	if before != nil {
		k.logTransitions(in.Plan, before.count.Pods, m.counted.count.Pods)
	}
	in.Pods = &m.counted.count
	return m.counted.count.Again
}

// logTransitions logs each pod that is new or gone, or whose sidecar changed state.
func (k *keeper) logTransitions(p *compile.Plan, before, after map[types.NamespacedName]compile.PodState) {
	log := func(pod types.NamespacedName, s compile.PodState, message string) {
		k.log.Info().Str("watcher", p.Watcher.String()).Str("pod", pod.String()).
			Int64("generation", s.Generation).Str("state", string(s.State)).Str("reason", s.Reason).Msg(message)
	}
	for pod, now := range after {
		was, known := before[pod]
		if !known {
			log(pod, now, "pod injected")
			was.State = compile.Starting
		}
		if was.State != now.State {
			log(pod, now, map[compile.State]string{
				compile.Starting: "sidecar not ready", compile.Ready: "sidecar ready", compile.Failing: "sidecar failing",
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
