package curlctl

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/cluster"
	"github.com/kv8s/curl-me-that/proto/service/kube"
	watchv1 "github.com/kv8s/curl-me-that/proto/watch/v1alpha1"
)

// configMap reads the metadata of a ConfigMap; nil if there is none.
func configMap(ctx context.Context, o kube.Options, namespace, name string) (*metav1.PartialObjectMetadata, error) {
	object, err := cluster.ConfigMap(ctx, o, namespace, name)
	if apierrors.IsNotFound(err) {
		return nil, nil //nolint:nilnil // that it is gone is an answer
	}
	return object, fromKubernetes(err, "get ConfigMap "+namespace+"/"+name)
}

// watcher reads a Watcher; nil if there is none, none is served, or this user may
// not get it: who may get the ConfigMap gets all about that.
func watcher(ctx context.Context, o kube.Options, namespace, name string) (*watchv1.Watcher, error) {
	w, err := cluster.Watcher(ctx, o, namespace, name)
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) {
		return nil, nil //nolint:nilnil // that there is none is an answer
	}
	return w, fromKubernetes(err, "get Watcher "+namespace+"/"+name)
}

// ofWatcher returns the ConfigMap of that name and the Watcher that it belongs to;
// or, where there is no such ConfigMap, the Watcher of that name and its ConfigMap.
// Each may be nil.
func ofWatcher(ctx context.Context, o kube.Options, namespace, name string) (*metav1.PartialObjectMetadata, *watchv1.Watcher, error) {
	object, err := configMap(ctx, o, namespace, name)
	if err != nil {
		return nil, nil, err
	}
	if object == nil {
		w, err := watcher(ctx, o, namespace, name)
		if err != nil || w == nil {
			return nil, nil, err
		}
		object, err = configMap(ctx, o, namespace, w.ConfigMapName())
		return object, w, err
	}
	owner := object.Labels[watchv1.WatcherLabel]
	if controller := metav1.GetControllerOf(object); controller != nil && controller.Kind == watchv1.Kind {
		owner = controller.Name
	}
	if owner == "" {
		return object, nil, nil
	}
	w, err := watcher(ctx, o, namespace, owner)
	if w != nil && w.ConfigMapName() != name {
		w = nil // somebody else has labelled it
	}
	return object, w, err
}
