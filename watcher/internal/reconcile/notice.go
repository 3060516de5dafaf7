package reconcile

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/service/kube"
	"github.com/kv8s/curl-me-that/watcher/internal/observe"
	"github.com/kv8s/curl-me-that/watcher/internal/plan"
)

// notices of one object.
type notices struct {
	// holds tells of each state that was ever said whether it still holds.
	holds map[identity]bool
	// pending ones are still to be said.
	pending []pendingNotice
}

// identity tells a notice from others.
type identity struct {
	uid                types.UID
	reason, occurrence string
}

type pendingNotice struct {
	identity
	event kube.Event
}

// note queues what is new among the notices of an object, and tells whether
// anything is.
func (r *Reconciler) note(name types.NamespacedName, o *observe.Object, list []plan.Notice) (news bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := r.notices[name]
	if o == nil || n == nil && len(list) == 0 {
		delete(r.notices, name)
		return false
	}
	if n == nil {
		n = &notices{holds: map[identity]bool{}}
		r.notices[name] = n
	}
	now := map[identity]bool{}
	for _, notice := range list {
		id := identity{o.UID, notice.Reason, notice.Occurrence}
		now[id] = true
		held, before := n.holds[id]
		n.holds[id] = true
		if held {
			continue
		}
		news = true
		n.pending = append(n.pending, pendingNotice{id, event(o, notice, before)})
	}
	n.end(now)
	return news
}

// maxStates is how many states of one object are remembered that are over.
const maxStates = 64

// end takes note of what no longer holds. What could not be said while it held
// is dropped, unless it tells what has happened and not what is.
func (n *notices) end(now map[identity]bool) {
	if len(n.holds) > len(now)+maxStates {
		clear(n.holds)
		maps.Copy(n.holds, now)
	}
	for id := range n.holds {
		switch {
		case now[id]:
		case happening(id.reason):
			delete(n.holds, id) // another one has another name
		default:
			n.holds[id] = false
		}
	}
	n.pending = slices.DeleteFunc(n.pending, func(p pendingNotice) bool {
		return !now[p.identity] && !happening(p.reason)
	})
}

// happening tells whether a reason names something that happened, in contrast
// to something that is so until somebody changes it.
func happening(reason string) bool {
	return reason == pipeline.ReasonDrifted || reason == pipeline.ReasonContested
}

// event returns the Event for a notice. Its name follows from the occurrence,
// so that no watcher says it a second time; unless this one has seen it end,
// and begin again by another edit.
func event(o *observe.Object, n plan.Notice, again bool) kube.Event {
	e := kube.Event{
		Namespace: o.Namespace, Name: o.Name, UID: o.UID,
		Warning: true, Reason: n.Reason, Action: action(n.Reason), Note: n.Note, Occurrence: n.Occurrence,
	}
	if again {
		e.Occurrence += "\x00" + o.Written.Format(time.RFC3339)
	}
	return e
}

// say records the pending Events of an object. What fails stays pending.
func (r *Reconciler) say(ctx context.Context, name types.NamespacedName) error {
	r.mu.Lock()
	n := r.notices[name]
	var pending []pendingNotice
	if n != nil {
		pending, n.pending = n.pending, nil
	}
	r.mu.Unlock()
	var failed []pendingNotice
	var errs []error
	for _, p := range pending {
		if err := r.Recorder.Record(ctx, p.event); err != nil {
			failed, errs = append(failed, p), append(errs, err)
			continue
		}
		r.Metrics.told(p.reason)
		r.Log.Info().Str("namespace", name.Namespace).Str("configmap", name.Name).
			Str("reason", p.reason).Msg("told the owner")
	}
	if len(failed) > 0 {
		r.mu.Lock()
		n.pending = failed
		r.mu.Unlock()
	}
	return errors.Join(errs...)
}

// action names what the watcher did when it gave a notice.
func action(reason string) string {
	switch reason {
	case pipeline.ReasonDrifted:
		return "Refetch"
	case pipeline.ReasonContested:
		return "SlowDown"
	}
	return "Skip"
}
