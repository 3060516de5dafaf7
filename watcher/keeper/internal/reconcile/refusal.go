package reconcile

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	watchv1 "github.com/kv8s/curl-me-that/proto/watch/v1alpha1"
	"github.com/kv8s/curl-me-that/watcher/keeper/internal/plan"
)

// tooLong is the cause if the data is too large.
const tooLong = metav1.CauseType(field.ErrorTypeTooLong)

// isImmutable reports whether the API server refuses to change an immutable ConfigMap.
func isImmutable(err error) bool {
	cause, _ := apierrors.StatusCause(err, metav1.CauseType(field.ErrorTypeForbidden))
	return strings.Contains(cause.Message, "immutable")
}

// refusal returns the reason why the API server refuses a ConfigMap (nil if a retry may help, or the
// namespace is being deleted). It never quotes the server, because policies and webhooks may write
// anything.
func refusal(p *plan.Plan, err error) *plan.Problem {
	switch {
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return nil
	case isImmutable(err):
		return &plan.Problem{Reason: watchv1.ReasonTargetImmutable, Message: plan.Immutable(p)}
	case apierrors.IsRequestEntityTooLargeError(err), apierrors.HasStatusCause(err, tooLong):
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
