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
	// holds has the reported conditions, and whether they are still true.
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

// note queues Events for new conditions of an object, and reports whether there are any.
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

// maxStates is the maximum number of past conditions that are remembered per object.
const maxStates = 64

// end records which conditions are over. Their pending Events are dropped, unless they are
// transient.
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

// isTransient reports whether a reason is about a single incident, not a lasting state.
func isTransient(reason string) bool {
	return reason == pipeline.ReasonDrifted || reason == pipeline.ReasonContested
}

// event returns the Event for a condition. Its name follows from the occurrence, so that no watcher
// writes it twice, unless the condition ended and began again.
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

// emitEvents writes the pending Events of an object. Failed ones stay pending, and those beyond the
// budget of the namespace. It returns the time until there is some budget.
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

// maxMemory is the size above which a memory is cleaned.
const maxMemory = 4096

// memory is a map that drops old entries each time its size has doubled, so cleaning costs no more
// than adding.
type memory[K comparable, V any] struct {
	of map[K]V
	// lookAt is the size at which it is cleaned next.
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
