package reconcile

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kv8s/curl-me-that/proto/budget"
	"github.com/kv8s/curl-me-that/proto/failure"
	"github.com/kv8s/curl-me-that/proto/kube"
	"github.com/kv8s/curl-me-that/proto/process"
	"github.com/kv8s/curl-me-that/watcher/internal/annotated"
	"github.com/kv8s/curl-me-that/watcher/internal/plan"
)

// notices tells the owners of objects about problems, in Events.
type notices struct {
	record   func(context.Context, kube.Event) (written bool, short *budget.Shortage, err error)
	emitted  *prometheus.CounterVec
	log      zerolog.Logger
	coalesce time.Duration

	mu      sync.Mutex
	objects map[types.NamespacedName]*noticesOf
}

// noticesOf are the notices about one object.
type noticesOf struct {
	// lasting maps each notice to whether its cause still lasts.
	lasting map[noticeID]bool
	// pending Events have yet to be written.
	pending []pendingEvent
}

// noticeID distinguishes a notice from others.
type noticeID struct {
	uid                types.UID
	reason, occurrence string
}

type pendingEvent struct {
	noticeID
	event kube.Event
}

// queue queues Events for new notices about an object, and reports whether there are any.
func (n *notices) queue(name types.NamespacedName, o *annotated.Object, list []plan.Notice) (changed bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	known := n.objects[name]
	if o == nil || known == nil && len(list) == 0 {
		delete(n.objects, name)
		return false
	}
	if known == nil {
		known = &noticesOf{lasting: map[noticeID]bool{}}
		n.objects[name] = known
	}
	now := map[noticeID]bool{}
	for _, notice := range list {
		id := noticeID{o.UID, notice.Reason, notice.Occurrence}
		now[id] = true
		lasts, before := known.lasting[id]
		known.lasting[id] = true
		if lasts {
			continue
		}
		changed = true
		known.pending = append(known.pending, pendingEvent{id, event(o, notice, before)})
	}
	known.end(now)
	return changed
}

// maxStates is the maximum number of past notices that are remembered per object.
const maxStates = 64

// end records the notices that are over, and drops their pending Events unless they are transient.
func (n *noticesOf) end(now map[noticeID]bool) {
	if len(n.lasting) > len(now)+maxStates {
		clear(n.lasting)
		maps.Copy(n.lasting, now)
	}
	for id := range n.lasting {
		switch {
		case now[id]:
		case isTransient(id.reason):
			delete(n.lasting, id) // the next one has another occurrence
		default:
			n.lasting[id] = false
		}
	}
	n.pending = slices.DeleteFunc(n.pending, func(p pendingEvent) bool {
		return !now[p.noticeID] && !isTransient(p.reason)
	})
}

// skip is the action of Events about a key or an object that is left out.
const skip = "Skip"

// actions has the reasons of Events, and the action of each.
var actions = map[string]string{
	failure.Reason(failure.InvalidAnnotation): skip,
	failure.Reason(failure.KeyExists):         skip,
	failure.ReasonTooManyRemovals:             skip,
	failure.ReasonAdjusted:                    skip,
	failure.ReasonDrifted:                     "Refetch",
	failure.ReasonRepairBackOff:               "SlowDown",
}

// isTransient reports whether a reason is an incident, not a lasting state.
func isTransient(reason string) bool {
	return reason == failure.ReasonDrifted || reason == failure.ReasonRepairBackOff
}

// event returns the Event for a notice. Its name follows from the occurrence, so no watcher writes it
// again, unless its cause ended and began again.
func event(o *annotated.Object, n plan.Notice, again bool) kube.Event {
	e := kube.Event{
		Namespace: o.Namespace, Name: o.Name, UID: o.UID,
		Warning: n.Reason != failure.ReasonAdjusted, Reason: n.Reason, Action: actions[n.Reason],
		Note: n.Note, Occurrence: n.Occurrence,
	}
	if again {
		e.Occurrence += "\x00" + o.MainAnnotatedAt.Format(time.RFC3339)
	}
	return e
}

// emit writes the pending Events of an object. An Event stays pending if the write fails, or if it
// is over budget and not transient. It returns the time until there is budget, at least Coalesce.
func (n *notices) emit(ctx context.Context, name types.NamespacedName) (again time.Duration, err error) {
	n.mu.Lock()
	known := n.objects[name]
	var pending []pendingEvent
	if known != nil {
		pending, known.pending = known.pending, nil
	}
	n.mu.Unlock()
	var left []pendingEvent
	var errs []error
	for _, p := range pending {
		written, short, err := n.record(ctx, p.event)
		switch {
		case err != nil:
			left, errs = append(left, p), append(errs, err)
		case written:
			n.emitted.WithLabelValues(p.reason).Inc()
			process.LogObject(n.log.Info(), name.Namespace, name.Name).
				Str("reason", p.reason).Msg("emitted an Event")
		case short != nil && !isTransient(p.reason): // transient ones would pile up
			left, again = append(left, p), max(short.Wait, n.coalesce)
		}
	}
	if len(left) > 0 {
		n.mu.Lock()
		known.pending = left
		n.mu.Unlock()
	}
	return again, errors.Join(errs...)
}
