package console

import (
	"context"
	"errors"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/console/access"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/object"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/podusage"
	"github.com/kv8s/curl-me-that/proto/annotation/duration"
	watchv1 "github.com/kv8s/curl-me-that/proto/watch/v1alpha1"
)

func (s *Server) objectPage(v *visit) (*page, error) {
	s.model.Look(v.Context())
	view := object.View{
		Namespace: v.PathValue("namespace"), ConfigMap: v.PathValue("name"),
		Timeline: []object.TimelineEntry{},
	}
	pods, unseen := s.readObject(v.Context(), &view)
	if err := view.ReadStreams(v.Context(), s.deps.Conn.Client, &v.unread, s.deps.Now()); err != nil {
		return nil, err
	}
	if !view.Exists && view.Watcher == nil && len(view.Timeline) == 0 && len(view.Keys) == 0 {
		return nil, notFound("ConfigMap %s/%s: not found.", view.Namespace, view.ConfigMap)
	}
	slices.Reverse(view.Timeline)
	return &page{template: "object.html", title: view.Namespace + "/" + view.ConfigMap, data: map[string]any{
		"View": view, "Pods": pods, "Unseen": unseen, "Replay": v.can(access.Replay),
		"Command": command("curlctl", "status", view.Namespace+"/"+view.ConfigMap),
	}}, nil
}

// readObject adds the objects of Kubernetes, or returns why it cannot.
func (s *Server) readObject(ctx context.Context, view *object.View) (pods pods, unseen string) {
	if s.deps.Kubernetes == nil {
		return pods, "This console does not read Kubernetes. The page shows the data of NATS."
	}
	found, owner, err := s.deps.Kubernetes.Object(ctx, view.Namespace, view.ConfigMap)
	if err != nil {
		return pods, "Kubernetes is unavailable: " + err.Error()
	}
	if owner != nil {
		view.ConfigMap = owner.ConfigMapName()
		view.ReadWatcher(owner)
	}
	if found == nil {
		return pods, ""
	}
	pods.Read = true
	cm := podusage.ConfigMap{Name: found.Name, Watcher: owner, Changes: podusage.ChangesOf(found, owner)}
	if pods.All, err = s.deps.Kubernetes.Usage(ctx, view.Namespace, cm, false); err != nil {
		pods.Unseen = err.Error()
	}
	pods.More = max(0, len(pods.All)-podRows)
	pods.All = pods.All[:len(pods.All)-pods.More]
	view.ReadMetadata(found)
	return pods, ""
}

// podRows is the maximum number of containers.
const podRows = 100

// pods are the containers that use a ConfigMap.
type pods struct {
	// Read: pods were read; Unseen is the error.
	Read   bool
	Unseen string
	All    []podusage.Usage
	More   int
}

// newest returns a state and a text for whether a container can have the newest content.
func newest(n podusage.Newest) [2]string {
	switch n {
	case podusage.No:
		return [2]string{"failing", "no, not before a restart"}
	case podusage.Soon:
		return [2]string{"pending", "within " + duration.Format(podusage.KubeletDelay)}
	case podusage.AtStart:
		return [2]string{"gone", "at its start"}
	case podusage.Yes:
		return [2]string{"ok", "yes"}
	case podusage.Ended:
		return [2]string{"gone", "ended"}
	case podusage.Unknown:
	}
	return [2]string{"warning", "unknown"}
}

// findWatchers checks whether the cluster serves Watchers.
func (s *Server) findWatchers(ctx context.Context) {
	if s.deps.Kubernetes == nil {
		return
	}
	_, _, err := s.deps.Kubernetes.Watchers(ctx, "", "", 1)
	s.served(err)
}

// served notes whether Watchers are served, by the error of a list: forbidden means yes.
func (s *Server) served(err error) {
	s.watched.Store(err == nil || apierrors.IsForbidden(err))
}

// watcherRow is a Watcher in the list.
type watcherRow struct {
	watchv1.Watcher

	// State sums up the conditions. Reason and Message belong to the decisive one.
	State, Reason, Message string
	// ConfigMap is the name of its ConfigMap.
	ConfigMap string
}

func newWatcherRow(w watchv1.Watcher) watcherRow {
	row := watcherRow{Watcher: w, ConfigMap: w.ConfigMapName(), State: "pending"}
	if w.Spec.Suspend {
		row.State = "suspended"
	}
	for _, one := range []struct {
		condition, state string
		status           metav1.ConditionStatus
	}{
		{watchv1.ConditionReady, "ok", metav1.ConditionTrue},
		{watchv1.ConditionFresh, "failing", metav1.ConditionFalse},
		{watchv1.ConditionStalled, "stalled", metav1.ConditionTrue},
	} {
		if c := apimeta.FindStatusCondition(w.Status.Conditions, one.condition); c != nil {
			if c.Status == one.status {
				row.State = one.state
			}
			if c.Status == one.status || row.Reason == "" {
				row.Reason, row.Message = c.Reason, c.Message
			}
		}
	}
	return row
}

func (s *Server) watchersPage(v *visit) (*page, error) {
	if s.deps.Kubernetes == nil {
		return nil, notFound("This console does not read Kubernetes.")
	}
	namespace := v.FormValue("namespace")
	list, next, err := s.deps.Kubernetes.Watchers(v.Context(), namespace, v.FormValue("after"), pageRows)
	s.served(err)
	switch {
	case apierrors.IsNotFound(err):
		return nil, &problem{
			404, "No Watchers", "This cluster does not serve the resource Watcher.",
			"Install it with deploy/kubernetes/watchers.yaml, or resources.enabled of the chart.",
		}
	case apierrors.IsForbidden(err):
		return nil, forbidden("The Kubernetes user of this console may not list Watchers.")
	case apierrors.IsResourceExpired(err):
		return nil, badRequest(errors.New("after: the list has changed too much, start again"))
	case apierrors.IsBadRequest(err):
		return nil, badRequest(errors.New("after: invalid position"))
	case err != nil:
		return nil, &problem{502, "Kubernetes does not respond", err.Error(), "Try again."}
	}
	rows := make([]watcherRow, 0, len(list))
	for _, w := range list {
		rows = append(rows, newWatcherRow(w))
	}
	return &page{template: "watchers.html", title: "Watchers", data: map[string]any{
		"Rows": rows, "Next": next, "Namespace": namespace, "After": v.FormValue("after"),
		"Command": watchersCommand(namespace),
	}}, nil
}

func watchersCommand(namespace string) string {
	if namespace == "" {
		return "kubectl get watchers --all-namespaces"
	}
	return command("kubectl", "get", "watchers", "--namespace="+namespace)
}
