package reconcile

import (
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kv8s/curl-me-that/proto/annotation"
	watchv1 "github.com/kv8s/curl-me-that/proto/watch/v1alpha1"
	"github.com/kv8s/curl-me-that/watcher/keeper/internal/plan"
)

// owns returns the reason why an existing ConfigMap does not belong to the Watcher (nil if it does, or
// may be taken over). A label is enough to hand it over.
func owns(p *plan.Plan, t *plan.Target) *plan.Problem {
	label := watchv1.LabelValue(p.Watcher.Name)
	controller, ours := t.Controller, watchv1.GroupVersion().WithKind(watchv1.Kind).GroupKind()
	switch {
	case t.Label == "":
		return exists(p, "exists and is not changed; label it "+watchv1.WatcherLabel+"="+label+" to hand it over, or")
	case t.Label != label:
		return owned(p, t.Label)
	case controller.UID == "" || controller.UID == p.UID:
		return nil
	case controller.Name == p.Watcher.Name &&
		schema.FromAPIVersionAndKind(controller.APIVersion, controller.Kind).GroupKind() == ours:
		return nil // of a deleted Watcher with the same name
	}
	return exists(p, "belongs to "+controller.Kind+" "+controller.Name+";")
}

func exists(p *plan.Plan, how string) *plan.Problem {
	return &plan.Problem{
		Reason: watchv1.ReasonTargetExists, Message: "ConfigMap " + p.Target.Name + " " + how + " use another name",
	}
}

func owned(p *plan.Plan, by string) *plan.Problem {
	return &plan.Problem{
		Reason:  watchv1.ReasonTargetOwned,
		Message: "ConfigMap " + p.Target.Name + " belongs to Watcher " + by + "; use another name",
	}
}

// protects returns the reason why a ConfigMap is protected (nil if it is not).
func protects(protected []string, p *plan.Plan) *plan.Problem {
	if !annotation.Protects(protected, p.Target.Namespace, p.Target.Name) {
		return nil
	}
	message := "namespace " + p.Target.Namespace + " is protected; create the Watcher in another namespace"
	if p.Target.Name == annotation.RootCA {
		message = "ConfigMap " + p.Target.Name + " is protected; name another one"
	}
	return &plan.Problem{Reason: watchv1.ReasonTargetRefused, Message: message}
}
