package keeper

import (
	"cmp"
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kv8s/curl-me-that/proto/failure"
	"github.com/kv8s/curl-me-that/proto/kube"
	watchv1 "github.com/kv8s/curl-me-that/proto/watch/v1alpha1"
	"github.com/kv8s/curl-me-that/watcher/keeper/internal/compile"
)

// emit writes Events about the changes between two states. It runs before the status is written, and a
// repeated Event has the same name, so none is lost or written twice.
func (k *keeper) emit(ctx context.Context, in compile.Input, after watchv1.WatcherStatus) error {
	for _, e := range append(changes(in.Plan, in.Previous, after), sidecarChanges(in, after)...) {
		if err := k.record(ctx, e); err != nil {
			return err
		}
	}
	return nil
}

// changes returns the Events between two states.
func changes(p *compile.Plan, before, after watchv1.WatcherStatus) []kube.Event {
	var events []kube.Event
	find := func(s watchv1.WatcherStatus, kind string) *metav1.Condition {
		return cmp.Or(meta.FindStatusCondition(s.Conditions, kind), &metav1.Condition{})
	}
	was, is := find(before, watchv1.ConditionStalled), find(after, watchv1.ConditionStalled)
	stalled := is.Status == metav1.ConditionTrue
	if stalled && (was.Reason != is.Reason || was.ObservedGeneration != is.ObservedGeneration) {
		events = append(events, event(p, is.Reason, "Skip", is.Message, fmt.Sprint(p.Generation)))
	}
	was, is = find(before, watchv1.ConditionFresh), find(after, watchv1.ConditionFresh)
	switch {
	case is.Status == metav1.ConditionFalse && was.Reason != is.Reason && !stalled:
		events = append(events, event(p, is.Reason, "Fetch", is.Message, is.Message))
	case is.Status == metav1.ConditionTrue && was.Status == metav1.ConditionFalse:
		e := event(p, failure.ReasonRecovered, "Fetch", "every source has recovered, after "+was.Message,
			was.LastTransitionTime.String())
		e.Warning = false
		events = append(events, e)
	}
	return events
}

// sidecarChanges returns the Events about sidecars: one when the first sidecar fails, and one when all have
// recovered. The Watcher's version distinguishes them from earlier ones.
func sidecarChanges(in compile.Input, after watchv1.WatcherStatus) []kube.Event {
	if in.Pods == nil {
		return nil
	}
	failing := func(p *watchv1.PodsStatus) bool { return p != nil && p.Failing > 0 }
	e := event(in.Plan, watchv1.ReasonSidecarFailing, "Observe", "", fmt.Sprint(in.Version))
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

// event returns a warning on a Watcher. The occurrence distinguishes it from others with the same reason.
func event(p *compile.Plan, reason, action, note, occurrence string) kube.Event {
	return kube.Event{
		APIVersion: watchv1.GroupVersion().String(), Kind: watchv1.Kind,
		Namespace: p.Watcher.Namespace, Name: p.Watcher.Name, UID: p.UID,
		Warning: true, Reason: reason, Action: action, Note: note, Occurrence: occurrence,
	}
}

// record writes an Event and logs it.
func (k *keeper) record(ctx context.Context, e kube.Event) error {
	if _, _, err := k.recorder.Record(ctx, e); err != nil { // there is no budget
		return err
	}
	k.log.Info().Str("watcher", e.Namespace+"/"+e.Name).Str("reason", e.Reason).Msg("emitted an Event")
	return nil
}

// reportLimit reports once that another controller keeps changing the ConfigMap.
func (k *keeper) reportLimit(ctx context.Context, in *compile.Input, m *memory) {
	if m.repairs.Reported {
		return
	}
	err := k.record(ctx, event(in.Plan, failure.ReasonRepairBackOff, "SlowDown", "ConfigMap "+in.Plan.Target.Name+
		" keeps being changed"+cmp.Or(by(in), " by somebody else")+"; it is repaired at growing intervals",
		fmt.Sprint(in.Plan.Generation)))
	if m.repairs.Reported = err == nil; err != nil {
		k.log.Warn().Err(err).Msg("could not write an Event")
	}
}

// drifted emits the Event for a repaired ConfigMap.
func (k *keeper) drifted(ctx context.Context, in *compile.Input) error {
	note := fmt.Sprintf("ConfigMap %s was changed%s and has been repaired", in.Plan.Target.Name, by(in))
	if in.Target == nil {
		note = "ConfigMap " + in.Plan.Target.Name + " was deleted and has been created again"
	}
	return k.record(ctx, event(in.Plan, failure.ReasonDrifted, "Apply", note, k.clock.Now().String()))
}

// by returns the field manager that changed a ConfigMap, if known.
func by(in *compile.Input) string {
	if in.Target == nil || in.Target.Other == "" {
		return ""
	}
	return " by " + in.Target.Other
}
