package plan

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	watchv1 "github.com/kv8s/curl-me-that/proto/watch/v1alpha1"
)

// Wanted is the sidecar that a Watcher currently asks for.
type Wanted struct {
	// Watcher is the name of the Watcher, and Generation its newest generation.
	Watcher    string
	Generation int64
	// Container is the name of the sidecar (empty if it asks for none).
	Container string
}

// PodState is the state of the sidecar of one pod.
type PodState struct {
	State State
	// Reason is the reason of a failure.
	Reason string
	// Generation is the generation of the Watcher when the pod was created.
	Generation int64
}

// Count has the states of the sidecars of one Watcher.
type Count struct {
	watchv1.PodsStatus
	// Pods has the pods with a sidecar.
	Pods map[types.NamespacedName]PodState
	// Worst is the first pod with a failing sidecar, if any.
	Worst types.NamespacedName
	// Again is the time until the count may change without an event (0: never).
	Again time.Duration
}

// CountPods counts the pods with a sidecar of a Watcher.
func CountPods(w Wanted, pods []*Pod, now time.Time) Count {
	count := Count{Pods: make(map[types.NamespacedName]PodState, len(pods))}
	for _, pod := range pods {
		for _, injection := range pod.Injected {
			if injection.Watcher != w.Watcher {
				continue
			}
			seen := PodState{State: Starting, Generation: injection.Generation}
			if c, found := pod.Of(w.Container); found {
				if seen.State = c.at(now); seen.State == Failing {
					seen.Reason = c.Reason
				}
				if wait := c.Steady.Sub(now); wait > 0 && (count.Again == 0 || wait < count.Again) {
					count.Again = wait
				}
			}
			count.add(pod.NamespacedName, seen, w.Generation)
		}
	}
	return count
}

func (c *Count) add(pod types.NamespacedName, s PodState, newest int64) {
	c.Pods[pod] = s
	c.Injected++
	if s.Generation == newest {
		c.Current++
	}
	switch s.State {
	case Ready:
		c.Ready++
	case Failing:
		if c.Failing++; c.Worst.Name == "" {
			c.Worst = pod
		}
	case Starting:
	}
}
