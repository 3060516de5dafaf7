package condition

import (
	"unique"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	watchv1 "github.com/kv8s/curl-me-that/proto/watch/v1alpha1"
)

// Kept reduces a status to the fields that Compute and its Events need. Keeper caches it for each
// Watcher.
func Kept(s watchv1.WatcherStatus) watchv1.WatcherStatus {
	kept := watchv1.WatcherStatus{
		ContentSHA256: s.ContentSHA256, ChangedAt: s.ChangedAt, LastHandledReconcileAt: s.LastHandledReconcileAt,
		Pods:       s.Pods,
		Conditions: make([]metav1.Condition, len(s.Conditions)),
	}
	for i, c := range s.Conditions {
		kept.Conditions[i] = metav1.Condition{
			Type: unique.Make(c.Type).Value(), Status: unique.Make(c.Status).Value(), Reason: unique.Make(c.Reason).Value(),
			ObservedGeneration: c.ObservedGeneration, LastTransitionTime: c.LastTransitionTime,
		}
		if c.Type == watchv1.ConditionInjectable || c.Type == watchv1.ConditionFresh && c.Status == metav1.ConditionFalse {
			kept.Conditions[i].Message = c.Message
		}
	}
	return kept
}
