package console

import (
	"context"
	"slices"

	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/console/access"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/object"
)

func (s *Server) objectPage(v *visit) (*page, error) {
	s.model.Look(v.Context())
	view := object.View{
		Namespace: v.PathValue("namespace"), ConfigMap: v.PathValue("name"),
		Timeline: []object.TimelineEntry{},
	}
	unseen := s.readObject(v.Context(), &view)
	if err := view.ReadStreams(v.Context(), v.client, s.deps.Now()); err != nil {
		return nil, err
	}
	if !view.Exists && view.Watcher == nil && len(view.Timeline) == 0 && len(view.Keys) == 0 {
		return nil, notFound("ConfigMap %s/%s: not found.", view.Namespace, view.ConfigMap)
	}
	slices.Reverse(view.Timeline)
	return &page{template: "object.html", title: view.Namespace + "/" + view.ConfigMap, data: map[string]any{
		"View": view, "Unseen": unseen, "Replay": v.can(access.Replay),
		"Command": command("curlctl", "status", view.Namespace+"/"+view.ConfigMap),
	}}, nil
}

// readObject adds the objects of Kubernetes, or returns why it cannot.
func (s *Server) readObject(ctx context.Context, view *object.View) (unseen string) {
	if s.deps.Kubernetes == nil {
		return "This console does not read Kubernetes. The page shows the data of NATS."
	}
	if err := view.ReadCluster(ctx, s.deps.Kubernetes); err != nil {
		return "Kubernetes is unavailable: " + err.Error()
	}
	return ""
}
