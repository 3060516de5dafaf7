package reconcile

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/process"
	"github.com/kv8s/curl-me-that/proto/process/budget"
	"github.com/kv8s/curl-me-that/proto/process/kube"
	"github.com/kv8s/curl-me-that/watcher/internal/annotated"
	"github.com/kv8s/curl-me-that/watcher/internal/plan"
)

// conditions are the reported conditions of one object.
type conditions struct {
	// holds maps each reported condition to whether it still holds.
	holds map[identity]bool
	// pending Events have yet to be written.
	pending []pendingEvent
}

// identity distinguishes a condition from others.
type identity struct {
	uid                types.UID
	reason, occurrence string
}

type pendingEvent struct {
	identity
	event kube.Event
}

// queueEvents queues Events for new conditions of an object, and reports whether there are any.
func (r *Reconciler) queueEvents(name types.NamespacedName, o *annotated.Object, list []plan.Condition) (changed bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := r.conditions[name]
	if o == nil || n == nil && len(list) == 0 {
		delete(r.conditions, name)
		return false
	}
	if n == nil {
		n = &conditions{holds: map[identity]bool{}}
		r.conditions[name] = n
	}
	now := map[identity]bool{}
	for _, condition := range list {
		id := identity{o.UID, condition.Reason, condition.Occurrence}
		now[id] = true
		held, before := n.holds[id]
		n.holds[id] = true
		if held {
			continue
		}
		changed = true
		n.pending = append(n.pending, pendingEvent{id, event(o, condition, before)})
	}
	n.end(now)
	return changed
}

// maxStates is the maximum number of past conditions that are remembered per object.
const maxStates = 64

// end records the conditions that are over, and drops their pending Events unless they are transient.
func (n *conditions) end(now map[identity]bool) {
	if len(n.holds) > len(now)+maxStates {
		clear(n.holds)
		maps.Copy(n.holds, now)
	}
	for id := range n.holds {
		switch {
		case now[id]:
		case isTransient(id.reason):
			delete(n.holds, id) // the next one has another occurrence
		default:
			n.holds[id] = false
		}
	}
	n.pending = slices.DeleteFunc(n.pending, func(p pendingEvent) bool {
		return !now[p.identity] && !isTransient(p.reason)
	})
}

// isTransient reports whether a reason is an incident, not a lasting state.
func isTransient(reason string) bool {
	return reason == pipeline.ReasonDrifted || reason == pipeline.ReasonContested
}

// event returns the Event for a condition. Its name follows from the occurrence, so no watcher writes it
// again, unless the condition ended and began again.
func event(o *annotated.Object, n plan.Condition, again bool) kube.Event {
	e := kube.Event{
		Namespace: o.Namespace, Name: o.Name, UID: o.UID,
		Warning: n.Reason != pipeline.ReasonAdjusted, Reason: n.Reason, Action: action(n.Reason),
		Note: n.Note, Occurrence: n.Occurrence,
	}
	if again {
		e.Occurrence += "\x00" + o.Written.Format(time.RFC3339)
	}
	return e
}

// emitEvents writes the pending Events of an object. An Event stays pending if the write fails, or if it
// is over budget and not transient. It returns the time until there is budget.
func (r *Reconciler) emitEvents(ctx context.Context, name types.NamespacedName) (again time.Duration, err error) {
	r.mu.Lock()
	n := r.conditions[name]
	var pending []pendingEvent
	if n != nil {
		pending, n.pending = n.pending, nil
	}
	r.mu.Unlock()
	var left []pendingEvent
	var errs []error
	for _, p := range pending {
		if wait := r.overBudget(name.Namespace); wait > 0 {
			if !isTransient(p.reason) { // transient ones would pile up
				left, again = append(left, p), wait
			}
			continue
		}
		if err := r.deps.Recorder.Record(ctx, p.event); err != nil {
			left, errs = append(left, p), append(errs, err)
			continue
		}
		r.deps.Metrics.events.WithLabelValues(p.reason).Inc()
		process.LogObject(r.deps.Log.Info(), name.Namespace, name.Name).
			Str("reason", p.reason).Msg("emitted an Event")
	}
	if len(left) > 0 {
		r.mu.Lock()
		n.pending = left
		r.mu.Unlock()
	}
	return again, errors.Join(errs...)
}

// overBudget takes one Event from the budget of a namespace, or returns the time until there is one.
func (r *Reconciler) overBudget(namespace string) time.Duration {
	short := r.deps.Events.Take(namespace, 1)
	if short == nil {
		return 0
	}
	r.deps.Metrics.overBudget.Inc()
	if short.First {
		r.deps.Log.Warn().Str("namespace", namespace).Str("budget", budget.Events).
			Msg("namespace exceeded its Event budget, Events for ongoing problems are delayed")
	}
	return max(short.Wait, r.config.Coalesce)
}

// action returns the action in the Event for a reason.
func action(reason string) string {
	switch reason {
	case pipeline.ReasonDrifted:
		return "Refetch"
	case pipeline.ReasonContested:
		return "SlowDown"
	}
	return "Skip"
}

// maxMemory is the size at which a memory is first cleaned.
const maxMemory = 4096

// memory is a map that drops old entries each time its size has doubled, so cleaning costs no more
// than adding.
type memory[K comparable, V any] struct {
	entries map[K]V
	// cleanAt is the size at which it is cleaned next.
	cleanAt int
	expired func(V) bool
}

func newMemory[K comparable, V any](expired func(V) bool) memory[K, V] {
	return memory[K, V]{entries: map[K]V{}, cleanAt: maxMemory, expired: expired}
}

// put adds or replaces an entry.
func (m *memory[K, V]) put(key K, entry V) {
	if len(m.entries) >= m.cleanAt {
		maps.DeleteFunc(m.entries, func(_ K, v V) bool { return m.expired(v) })
		m.cleanAt = max(maxMemory, 2*len(m.entries))
	}
	m.entries[key] = entry
}
