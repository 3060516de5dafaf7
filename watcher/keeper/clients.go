package keeper

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	watchv1 "github.com/kv8s/curl-me-that/proto/watch/v1alpha1"
	"github.com/kv8s/curl-me-that/watcher/internal/informer"
	"github.com/kv8s/curl-me-that/watcher/keeper/internal/compile"
)

// clients are the API clients of keeper.
type clients struct {
	*informer.Clients

	watching, writing *watchv1.Client
	pods              corev1client.PodsGetter
	// metadata is for requests of the reconciler.
	metadata metadata.Interface
}

func connect(config *rest.Config) (*clients, error) {
	shared, err := informer.NewClients(config)
	if err != nil {
		return nil, err
	}
	c := &clients{Clients: shared}
	if c.watching, err = watchv1.NewClient(c.Watching, nil); err != nil {
		return nil, err
	}
	if c.pods, err = newPods(c.Watching); err != nil {
		return nil, err
	}
	if c.writing, err = watchv1.NewClient(c.Writing, nil); err != nil {
		return nil, err
	}
	c.metadata, err = metadata.NewForConfig(c.Writing)
	return c, err
}

// newPods returns the API of pods in Protobuf, which is cheaper to decode than JSON.
func newPods(shared *rest.Config) (corev1client.PodsGetter, error) {
	config := rest.CopyConfig(shared)
	config.ContentType = runtime.ContentTypeProtobuf
	config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	return corev1client.NewForConfig(config)
}

// namespaces lists and watches all namespaces, or one.
func namespaces(client metadata.Interface) informer.Objects {
	resource := client.Resource(corev1.SchemeGroupVersion.WithResource("namespaces"))
	only := func(namespace string, o metav1.ListOptions) metav1.ListOptions {
		if namespace != "" {
			o.FieldSelector = "metadata.name=" + namespace
		}
		return o
	}
	return informer.Objects{
		Name: "Namespaces", Type: &metav1.PartialObjectMetadata{},
		List: func(ctx context.Context, namespace string, o metav1.ListOptions) (runtime.Object, error) {
			return resource.List(ctx, only(namespace, o))
		},
		Watch: func(ctx context.Context, namespace string, o metav1.ListOptions) (watch.Interface, error) {
			return resource.Watch(ctx, only(namespace, o))
		},
	}
}

func (c *clients) configMaps(namespace string) metadata.ResourceInterface {
	return c.metadata.Resource(corev1.SchemeGroupVersion.WithResource("configmaps")).Namespace(namespace)
}

// Watcher uses a list, because keeper has no permission to get.
func (c *clients) Watcher(ctx context.Context, name types.NamespacedName) (*watchv1.Watcher, error) {
	list, err := c.writing.In(name.Namespace).List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + name.Name})
	if err != nil {
		return nil, fmt.Errorf("read Watcher %s: %w", name, err)
	}
	if len(list.Items) == 0 {
		return nil, nil //nolint:nilnil // it does not exist
	}
	return &list.Items[0], nil
}

// Find uses a list, because keeper has no permission to get.
func (c *clients) Find(ctx context.Context, name types.NamespacedName) (*metav1.PartialObjectMetadata, error) {
	list, err := c.configMaps(name.Namespace).List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + name.Name})
	if err != nil {
		return nil, fmt.Errorf("look for ConfigMap %s: %w", name, err)
	}
	if len(list.Items) == 0 {
		return nil, nil //nolint:nilnil // it does not exist
	}
	return &list.Items[0], nil
}

// Apply forces keeper's fields and keeps all others.
func (c *clients) Apply(
	ctx context.Context, name types.NamespacedName, body []byte,
) (*metav1.PartialObjectMetadata, error) {
	return c.configMaps(name.Namespace).Patch(ctx, name.Name, types.ApplyPatchType, body,
		metav1.PatchOptions{FieldManager: watchv1.FieldManager, Force: new(true)})
}

// Report replaces the whole status, because an apply removes the fields that it omits.
func (c *clients) Report(ctx context.Context, p *compile.Plan, s watchv1.WatcherStatus) (*watchv1.Watcher, error) {
	body, err := json.Marshal(map[string]any{
		"apiVersion": watchv1.GroupVersion().String(), "kind": watchv1.Kind,
		"metadata": map[string]any{"name": p.Watcher.Name, "namespace": p.Watcher.Namespace, "uid": p.UID},
		"status":   s,
	})
	if err != nil {
		return nil, fmt.Errorf("encode the status: %w", err)
	}
	return c.writing.In(p.Watcher.Namespace).Patch(ctx, p.Watcher.Name, types.ApplyPatchType, body,
		metav1.PatchOptions{FieldManager: watchv1.FieldManager, Force: new(true)}, "status")
}
