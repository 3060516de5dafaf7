// Package cluster is the client of Kubernetes for operators: it reads ConfigMaps and Watchers, and pins keys.
package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/pager"

	"github.com/kv8s/curl-me-that/proto/kube"
	watchv1 "github.com/kv8s/curl-me-that/proto/watch/v1alpha1"
)

// Error is an error of the API server, or of the connection to it.
type Error struct {
	// Operation such as "get ConfigMap team-a/rules".
	Operation string
	Err       error
}

// Error implements error.
func (e *Error) Error() string {
	if apierrors.IsForbidden(e.Err) || apierrors.IsUnauthorized(e.Err) {
		text := "this Kubernetes user may not " + e.Operation
		// RBAC begins with the user. A policy or quota has a sentence of its own, which says what to do.
		if _, why, found := strings.Cut(e.Err.Error(), "is forbidden: "); found && !strings.HasPrefix(why, "User ") {
			text += ": " + why
		}
		return text
	}
	return e.Operation + ": " + PlainError{Err: e.Err}.Error()
}

// Unwrap returns the error of the API server.
func (e *Error) Unwrap() error { return e.Err }

// Client reads Kubernetes with the rights of the user. Its errors are *Error.
type Client struct {
	Options kube.Options
	// Timeout limits each request (0: there is no limit).
	Timeout time.Duration
}

// using calls do with clients, and closes their connections.
func (c *Client) using(operation string, do func(Clients) error) error {
	k, done, err := Open(c.Options, c.Timeout)
	if err == nil {
		defer done()
		err = do(k)
	}
	if err != nil {
		return &Error{Operation: operation, Err: err}
	}
	return nil
}

// Object reads the metadata of a ConfigMap, and the Watcher that owns it. If no ConfigMap has the name, it
// reads the Watcher with that name and its ConfigMap. Either result may be nil.
func (c *Client) Object(
	ctx context.Context, namespace, name string,
) (*metav1.PartialObjectMetadata, *watchv1.Watcher, error) {
	object, err := c.configMap(ctx, namespace, name)
	if err != nil {
		return nil, nil, err
	}
	if object == nil {
		w, err := c.watcher(ctx, namespace, name)
		if err != nil || w == nil {
			return nil, nil, err
		}
		object, err = c.configMap(ctx, namespace, w.ConfigMapName())
		return object, w, err
	}
	owner := object.Labels[watchv1.WatcherLabel]
	if controller := metav1.GetControllerOf(object); controller != nil && controller.Kind == watchv1.Kind {
		owner = controller.Name
	}
	if owner == "" {
		return object, nil, nil
	}
	w, err := c.watcher(ctx, namespace, owner)
	if w != nil && w.ConfigMapName() != name {
		w = nil // anybody may set the label
	}
	return object, w, err
}

// configMap reads the metadata of a ConfigMap, without its data (nil: it does not exist).
func (c *Client) configMap(
	ctx context.Context, namespace, name string,
) (object *metav1.PartialObjectMetadata, err error) {
	err = c.using("get ConfigMap "+namespace+"/"+name, func(k Clients) (err error) {
		object, err = k.ConfigMaps.Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			object, err = nil, nil
		}
		return err
	})
	return object, err
}

// EachConfigMap visits the metadata of the ConfigMaps of a namespace and name (empty: all).
func (c *Client) EachConfigMap(
	ctx context.Context, namespace, name string, visit func(*metav1.PartialObjectMetadata),
) error {
	return c.using("list ConfigMaps", func(k Clients) error {
		options := metav1.ListOptions{}
		if name != "" {
			options.FieldSelector = "metadata.name=" + name
		}
		list := func(ctx context.Context, page metav1.ListOptions) (runtime.Object, error) {
			return k.ConfigMaps.Namespace(namespace).List(ctx, page)
		}
		return pager.New(list).EachListItem(ctx, options, func(item runtime.Object) error {
			if object, ok := item.(*metav1.PartialObjectMetadata); ok {
				visit(object)
			}
			return nil
		})
	})
}

// Events reads up to 100 Events of a namespace with a reason.
func (c *Client) Events(ctx context.Context, namespace, reason string) (events []corev1.Event, err error) {
	err = c.using("list Events", func(k Clients) error {
		list, err := k.Core.Events(namespace).List(ctx, metav1.ListOptions{FieldSelector: "reason=" + reason, Limit: 100})
		if err == nil {
			events = list.Items
		}
		return err
	})
	return events, err
}

// Annotate sets an annotation of this version of a ConfigMap (empty: removes it).
func (c *Client) Annotate(ctx context.Context, object *metav1.PartialObjectMetadata, name, value string) error {
	return c.using("patch ConfigMap "+object.Namespace+"/"+object.Name, func(k Clients) error {
		annotations := map[string]any{name: value}
		if value == "" {
			annotations[name] = nil
		}
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
			"uid": object.UID, "resourceVersion": object.ResourceVersion, "annotations": annotations,
		}})
		if err == nil {
			_, err = k.ConfigMaps.Namespace(object.Namespace).Patch(ctx, object.Name, types.MergePatchType, patch,
				metav1.PatchOptions{FieldManager: "curlctl"})
		}
		return err
	})
}

// PinSource sets the digest of one source of a Watcher (empty: none).
func (c *Client) PinSource(ctx context.Context, w *watchv1.Watcher, key, digest string) error {
	n := slices.IndexFunc(w.Spec.Sources, func(s watchv1.Source) bool { return s.Key == key })
	switch {
	case n < 0:
		return fmt.Errorf("no source of Watcher %s/%s has key %s", w.Namespace, w.Name, key)
	case w.Spec.Sources[n].SHA256 == digest:
		return nil
	}
	return c.using("patch Watcher "+w.Namespace+"/"+w.Name, func(k Clients) error {
		pin := map[string]any{"op": "add", "path": fmt.Sprintf("/spec/sources/%d/sha256", n), "value": digest}
		if digest == "" {
			pin["op"] = "remove"
		}
		patch, err := json.Marshal([]map[string]any{
			{"op": "test", "path": "/metadata/resourceVersion", "value": w.ResourceVersion}, pin,
		})
		if err == nil {
			_, err = k.Watchers.In(w.Namespace).Patch(ctx, w.Name, types.JSONPatchType, patch,
				metav1.PatchOptions{FieldManager: "curlctl"})
		}
		return err
	})
}

// watcher reads a Watcher. It returns nil if the Watcher or its CRD does not exist, or if the user may not
// read it, because rights on the ConfigMap are enough.
func (c *Client) watcher(ctx context.Context, namespace, name string) (w *watchv1.Watcher, err error) {
	err = c.using("get Watcher "+namespace+"/"+name, func(k Clients) error {
		found, err := k.Watchers.In(namespace).Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) {
			return nil
		}
		if err == nil {
			w = found
		}
		return err
	})
	return w, err
}
