package keeper

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kv8s/curl-me-that/proto/annotation"
	watchv1 "github.com/kv8s/curl-me-that/proto/watch/v1alpha1"
	"github.com/kv8s/curl-me-that/watcher/keeper/internal/compile"
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
func refusal(p *compile.Plan, err error) *compile.Problem {
	switch {
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return nil
	case isImmutable(err):
		return &compile.Problem{Reason: watchv1.ReasonTargetImmutable, Message: compile.Immutable(p)}
	case apierrors.IsRequestEntityTooLargeError(err), apierrors.HasStatusCause(err, tooLong):
		return &compile.Problem{
			Reason:  watchv1.ReasonTooLarge,
			Message: "ConfigMap " + p.Target.Name + " would be too large; move static data to another Watcher",
		}
	case apierrors.IsInvalid(err), apierrors.IsForbidden(err), apierrors.IsBadRequest(err):
		return &compile.Problem{
			Reason: watchv1.ReasonTargetRefused,
			Message: "the API server refuses ConfigMap " + p.Target.Name +
				" (" + string(apierrors.ReasonForError(err)) + "); kubectl apply of a ConfigMap of that name prints why",
		}
	}
	return nil
}

// whyNotOurs returns the reason why an existing ConfigMap does not belong to the Watcher (nil if it does, or
// may be taken over). A label is enough to hand it over.
func whyNotOurs(p *compile.Plan, t *compile.Target) *compile.Problem {
	label := watchv1.LabelValue(p.Watcher.Name)
	controller, ours := t.Controller, watchv1.GroupVersion().WithKind(watchv1.Kind).GroupKind()
	switch {
	case t.Label == "":
		return targetExists(p, "exists and is not changed; label it "+watchv1.WatcherLabel+"="+label+" to hand it over, or")
	case t.Label != label:
		return targetOwned(p, t.Label)
	case controller.UID == "" || controller.UID == p.UID:
		return nil
	case controller.Name == p.Watcher.Name &&
		schema.FromAPIVersionAndKind(controller.APIVersion, controller.Kind).GroupKind() == ours:
		return nil // of a deleted Watcher with the same name
	}
	return targetExists(p, "belongs to "+controller.Kind+" "+controller.Name+";")
}

func targetExists(p *compile.Plan, how string) *compile.Problem {
	return &compile.Problem{
		Reason: watchv1.ReasonTargetExists, Message: "ConfigMap " + p.Target.Name + " " + how + " use another name",
	}
}

func targetOwned(p *compile.Plan, by string) *compile.Problem {
	return &compile.Problem{
		Reason:  watchv1.ReasonTargetOwned,
		Message: "ConfigMap " + p.Target.Name + " belongs to Watcher " + by + "; use another name",
	}
}

// whyProtected returns the reason why a ConfigMap is protected (nil if it is not).
func whyProtected(protected []string, p *compile.Plan) *compile.Problem {
	if !annotation.Protects(protected, p.Target.Namespace, p.Target.Name) {
		return nil
	}
	message := "namespace " + p.Target.Namespace + " is protected; create the Watcher in another namespace"
	if p.Target.Name == annotation.RootCA {
		message = "ConfigMap " + p.Target.Name + " is protected; name another one"
	}
	return &compile.Problem{Reason: watchv1.ReasonTargetRefused, Message: message}
}
