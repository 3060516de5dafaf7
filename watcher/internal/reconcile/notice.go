package reconcile

import (
	"context"
	"errors"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/service/kube"
	"github.com/kv8s/curl-me-that/watcher/internal/observe"
	"github.com/kv8s/curl-me-that/watcher/internal/plan"
)

// notices of one object: those that hold, and those still to be said.
type notices struct {
	said    map[string]struct{}
	pending []kube.Event
}

// note queues what is new among the notices of an object, and forgets what no
// longer holds.
func (r *Reconciler) note(name types.NamespacedName, o *observe.Object, list []plan.Notice) {
	r.mu.Lock()
	defer r.mu.Unlock()
	old := r.notices[name]
	if o == nil || old == nil && len(list) == 0 {
		delete(r.notices, name)
		return
	}
	if old == nil {
		old = &notices{}
	}
	holds := make(map[string]struct{}, len(list))
	for _, n := range list {
		id := string(o.UID) + "\x00" + n.Reason + "\x00" + n.Occurrence
		holds[id] = struct{}{}
		if _, said := old.said[id]; said {
			continue
		}
		r.Metrics.noticed(n.Reason)
		r.Log.Info().Str("namespace", o.Namespace).Str("configmap", o.Name).Str("key", n.Key).Str("reason", n.Reason).Msg("told the owner")
		old.pending = append(old.pending, kube.Event{
			Namespace: o.Namespace, Name: o.Name, UID: o.UID,
			Warning: true, Reason: n.Reason, Action: action(n.Reason), Note: n.Note, Occurrence: n.Occurrence,
		})
	}
	old.said = holds
	if len(holds)+len(old.pending) == 0 {
		delete(r.notices, name)
		return
	}
	r.notices[name] = old
}

// say records the pending Events of an object. What fails stays pending.
func (r *Reconciler) say(ctx context.Context, name types.NamespacedName) error {
	r.mu.Lock()
	var pending []kube.Event
	if n := r.notices[name]; n != nil {
		pending, n.pending = n.pending, nil
	}
	r.mu.Unlock()
	var failed []kube.Event
	var errs []error
	for _, e := range pending {
		if err := r.Recorder.Record(ctx, e); err != nil {
			failed, errs = append(failed, e), append(errs, err)
		}
	}
	if len(failed) > 0 {
		r.mu.Lock()
		if n := r.notices[name]; n != nil {
			n.pending = append(failed, n.pending...)
		}
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
