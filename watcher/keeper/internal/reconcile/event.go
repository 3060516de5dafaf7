package reconcile

import (
	"cmp"
	"context"
	"fmt"
	"strconv"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/process/kube"
	watchv1 "github.com/kv8s/curl-me-that/proto/watch/v1alpha1"
	"github.com/kv8s/curl-me-that/watcher/keeper/internal/plan"
)

// emit writes Events about the changes between two states. It runs before the status is written, and a
// repeated Event has the same name, so none is lost or written twice.
func (r *Reconciler) emit(ctx context.Context, in plan.Input, after watchv1.WatcherStatus) error {
	for _, e := range append(changes(in.Plan, in.Previous, after), sidecars(in, after)...) {
		if err := r.record(ctx, e); err != nil {
			return err
		}
	}
	return nil
}

// changes returns the Events between two states.
func changes(p *plan.Plan, before, after watchv1.WatcherStatus) []kube.Event {
	var events []kube.Event
	find := func(s watchv1.WatcherStatus, kind string) *metav1.Condition {
		return cmp.Or(meta.FindStatusCondition(s.Conditions, kind), &metav1.Condition{})
	}
	was, is := find(before, watchv1.ConditionStalled), find(after, watchv1.ConditionStalled)
	stalled := is.Status == metav1.ConditionTrue
	if stalled && (was.Reason != is.Reason || was.ObservedGeneration != is.ObservedGeneration) {
		e := event(p, is.Reason, "Skip", is.Message)
		e.Occurrence = fmt.Sprint(p.Generation)
		events = append(events, e)
	}
	was, is = find(before, watchv1.ConditionFresh), find(after, watchv1.ConditionFresh)
	switch {
	case is.Status == metav1.ConditionFalse && was.Reason != is.Reason && !stalled:
		e := event(p, is.Reason, "Fetch", is.Message)
		e.Occurrence = is.Message
		events = append(events, e)
	case is.Status == metav1.ConditionTrue && was.Status == metav1.ConditionFalse:
		e := event(p, pipeline.ReasonRecovered, "Fetch", "every source has recovered, after "+was.Message)
		e.Warning, e.Occurrence = false, was.LastTransitionTime.String()
		events = append(events, e)
	}
	return events
}

// sidecars returns the Events about sidecars: one when the first sidecar fails, and one when all have
// recovered. The Watcher's version distinguishes them from earlier ones.
func sidecars(in plan.Input, after watchv1.WatcherStatus) []kube.Event {
	if in.Pods == nil {
		return nil
	}
	failing := func(p *watchv1.PodsStatus) bool { return p != nil && p.Failing > 0 }
	e := event(in.Plan, watchv1.ReasonSidecarFailing, "Observe", "")
	e.Occurrence = strconv.FormatUint(in.Version, 10)
	switch was, is := failing(in.Previous.Pods), failing(after.Pods); {
	case is && !was:
		e.Note = fmt.Sprintf("the sidecar of pod %s fails: %s", in.Pods.Worst.Name, in.Pods.Pods[in.Pods.Worst].Reason)
	case was && !is:
		e.Warning, e.Reason, e.Note = false, watchv1.ReasonSidecarRecovered, "no sidecar fails any more"
	default:
		return nil
	}
	return []kube.Event{e}
}

// event returns a warning on a Watcher.
func event(p *plan.Plan, reason, action, note string) kube.Event {
	return kube.Event{
		APIVersion: watchv1.GroupVersion().String(), Kind: watchv1.Kind,
		Namespace: p.Watcher.Namespace, Name: p.Watcher.Name, UID: p.UID,
		Warning: true, Reason: reason, Action: action, Note: note,
	}
}

// record writes an Event and logs it.
func (r *Reconciler) record(ctx context.Context, e kube.Event) error {
	if err := r.deps.Recorder.Record(ctx, e); err != nil {
		return err
	}
	r.deps.Log.Info().Str("watcher", e.Namespace+"/"+e.Name).Str("reason", e.Reason).Msg("emitted an Event")
	return nil
}
