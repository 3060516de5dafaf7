package reconcile

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/process/budget"
	"github.com/kv8s/curl-me-that/proto/process/kube"
	"github.com/kv8s/curl-me-that/proto/process/logfield"
	"github.com/kv8s/curl-me-that/watcher/internal/annotated"
	"github.com/kv8s/curl-me-that/watcher/internal/plan"
)

// conditions of one object.
type conditions struct {
	// holds reports of each state that was ever emitted whether it still holds.
	holds map[identity]bool
	// pending ones are still to be emitted.
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

// note queues what is new among the conditions of an object, and reports whether
// anything is.
func (r *Reconciler) note(name types.NamespacedName, o *annotated.Object, list []plan.Condition) (changed bool) {
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

// maxStates is how many states of one object are remembered that are over.
const maxStates = 64

// end takes note of what no longer holds. What could not be emitted while it held
// is dropped, unless it is transient.
func (n *conditions) end(now map[identity]bool) {
	if len(n.holds) > len(now)+maxStates {
		clear(n.holds)
		maps.Copy(n.holds, now)
	}
	for id := range n.holds {
		switch {
		case now[id]:
		case isTransient(id.reason):
			delete(n.holds, id) // another one has another name
		default:
			n.holds[id] = false
		}
	}
	n.pending = slices.DeleteFunc(n.pending, func(p pendingEvent) bool {
		return !now[p.identity] && !isTransient(p.reason)
	})
}

// isTransient reports whether a reason names something that happened, in contrast
// to something that is so until somebody changes it.
func isTransient(reason string) bool {
	return reason == pipeline.ReasonDrifted || reason == pipeline.ReasonContested
}

// event returns the Event for a condition. Its name follows from the occurrence,
// so that no watcher emits it a second time; unless this one has seen it end,
// and begin again by another edit.
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

// emitEvents records the pending Events of an object. What fails stays pending,
// and so does what its namespace has no budget for: again is when there is some.
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
			if !isTransient(p.reason) { // one that is over would pile up
				left, again = append(left, p), wait
			}
			continue
		}
		if err := r.deps.Recorder.Record(ctx, p.event); err != nil {
			left, errs = append(left, p), append(errs, err)
			continue
		}
		r.deps.Metrics.events.WithLabelValues(p.reason).Inc()
		logfield.Object(r.deps.Log.Info(), name.Namespace, name.Name).
			Str("reason", p.reason).Msg("emitted an Event")
	}
	if len(left) > 0 {
		r.mu.Lock()
		n.pending = left
		r.mu.Unlock()
	}
	return again, errors.Join(errs...)
}

// overBudget uses up one of the Events of a namespace, or returns when there is
// one again.
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

// action names what the watcher did when it gave a condition.
func action(reason string) string {
	switch reason {
	case pipeline.ReasonDrifted:
		return "Refetch"
	case pipeline.ReasonContested:
		return "SlowDown"
	}
	return "Skip"
}

// maxMemory is how many entries of the past are kept without a look at which of
// them no longer matter.
const maxMemory = 4096

// memory is what is known of the past. Entries that no longer matter are looked
// for each time that it has doubled, so that the looks cost no more than what
// was put in.
type memory[K comparable, V any] struct {
	of map[K]V
	// lookAt is how many entries it has at the next look.
	lookAt int
	over   func(V) bool
}

func newMemory[K comparable, V any](over func(V) bool) memory[K, V] {
	return memory[K, V]{of: map[K]V{}, lookAt: maxMemory, over: over}
}

// put adds or replaces an entry.
func (m *memory[K, V]) put(key K, entry V) {
	if len(m.of) >= m.lookAt {
		maps.DeleteFunc(m.of, func(_ K, v V) bool { return m.over(v) })
		m.lookAt = max(maxMemory, 2*len(m.of))
	}
	m.of[key] = entry
}
