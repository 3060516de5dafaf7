package reconcile

import (
	"errors"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	watchv1 "github.com/kv8s/curl-me-that/proto/watch/v1alpha1"
	"github.com/kv8s/curl-me-that/watcher/keeper/internal/condition"
	"github.com/kv8s/curl-me-that/watcher/keeper/internal/plan"
)

// refusal returns the API server's objection to a ConfigMap; nil if a retry may help or the
// namespace is being deleted. It never repeats the server's text, because policies and webhooks may
// write anything in it.
func refusal(p *plan.Plan, err error) *plan.Problem {
	causes := causesOf(err)
	has := func(kind metav1.CauseType, text string) bool {
		return slices.ContainsFunc(causes, func(c metav1.StatusCause) bool {
			return (kind == "" || c.Type == kind) && strings.Contains(c.Message, text)
		})
	}
	switch {
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return nil
	case apierrors.IsInvalid(err) && has("", "immutable"):
		return &plan.Problem{Reason: watchv1.ReasonTargetImmutable, Message: condition.Immutable(p)}
	case apierrors.IsRequestEntityTooLargeError(err), apierrors.IsInvalid(err) && has("FieldValueTooLong", ""):
		return &plan.Problem{
			Reason:  watchv1.ReasonTooLarge,
			Message: "ConfigMap " + p.Target.Name + " would be too large; move static data to another Watcher",
		}
	case apierrors.IsInvalid(err), apierrors.IsForbidden(err), apierrors.IsBadRequest(err):
		return &plan.Problem{
			Reason: watchv1.ReasonTargetRefused,
			Message: "the API server refuses ConfigMap " + p.Target.Name +
				" (" + string(apierrors.ReasonForError(err)) + "); kubectl apply of a ConfigMap of that name prints why",
		}
	}
	return nil
}

func causesOf(err error) []metav1.StatusCause {
	var status apierrors.APIStatus
	if errors.As(err, &status) && status.Status().Details != nil {
		return status.Status().Details.Causes
	}
	return nil
}
