package sidecar

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	watchv1 "github.com/kv8s/curl-me-that/proto/watch/v1alpha1"
)

// Wanted is the sidecar that a Watcher asks for now.
type Wanted struct {
	// Watcher is its name, and Generation its newest one.
	Watcher    string
	Generation int64
	// Container is the name of the sidecar; empty: it asks for none any more.
	Container string
}

// Seen is how the sidecar of one pod fares.
type Seen struct {
	State State
	// Reason of a failure.
	Reason string
	// Generation of the Watcher that it is of.
	Generation int64
}

// Count is how the sidecars of one Watcher fare.
type Count struct {
	watchv1.PodsStatus
	// Seen are the pods.
	Seen map[types.NamespacedName]Seen
	// Worst is the first pod whose sidecar fails; the zero value: none does.
	Worst types.NamespacedName
	// Again is after what time the same pods may be counted otherwise; 0: never.
	Again time.Duration
}

// Of counts the pods with a sidecar of a Watcher.
func Of(w Wanted, pods []*Pod, now time.Time) Count {
	count := Count{Seen: make(map[types.NamespacedName]Seen, len(pods))}
	for _, pod := range pods {
		for _, injection := range pod.Injected {
			if injection.Watcher != w.Watcher {
				continue
			}
			seen := Seen{State: Starting, Generation: injection.Generation}
			if c, found := pod.Of(w.Container); found {
				if seen.State = c.At(now); seen.State == Failing {
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

func (c *Count) add(pod types.NamespacedName, s Seen, newest int64) {
	c.Seen[pod] = s
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
