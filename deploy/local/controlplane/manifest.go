package controlplane

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
)

// Apply applies all manifests (*.yaml) in some folders by server-side apply, ordered by folder and name, and
// returns the applied objects as kind/name.
func Apply(ctx context.Context, config *rest.Config, dirs []string) (applied []string, err error) {
	applier, err := NewApplier(config, "control-plane")
	if err != nil {
		return nil, err
	}
	for _, dir := range dirs {
		paths, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
		if err != nil {
			return applied, fmt.Errorf("list manifests: %w", err)
		}
		for _, path := range paths {
			text, err := os.ReadFile(path)
			if err != nil {
				return applied, fmt.Errorf("read manifest: %w", err)
			}
			objects, err := Decode(text)
			if err != nil {
				return applied, fmt.Errorf("%s: %w", path, err)
			}
			for _, object := range objects {
				if err := applier.Apply(ctx, "", object); err != nil {
					return applied, fmt.Errorf("%s: %w", path, err)
				}
				applied = append(applied, nameOf(object))
			}
		}
	}
	return applied, nil
}

func nameOf(object *unstructured.Unstructured) string {
	return object.GetKind() + "/" + object.GetName()
}

// Decode reads all objects of a manifest, which is YAML or JSON.
func Decode(manifest []byte) ([]*unstructured.Unstructured, error) {
	var objects []*unstructured.Unstructured
	for decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(manifest), 4096); ; {
		object := &unstructured.Unstructured{}
		err := decoder.Decode(&object.Object)
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err != nil {
			return nil, fmt.Errorf("decode manifest %d: %w", len(objects)+1, err)
		}
		if len(object.Object) > 0 { // not only comments
			objects = append(objects, object)
		}
	}
}

// definitionTimeout is how long the API server may take to serve a new CRD.
const definitionTimeout = 30 * time.Second

// Applier applies objects of any kind.
type Applier struct {
	client  dynamic.Interface
	mapper  *restmapper.DeferredDiscoveryRESTMapper
	manager string
}

// NewApplier returns an applier for a field manager.
func NewApplier(config *rest.Config, manager string) (*Applier, error) {
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("use the cluster: %w", err)
	}
	kinds, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("use the cluster: %w", err)
	}
	return &Applier{
		client: client, mapper: restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(kinds)),
		manager: manager,
	}, nil
}

// Apply creates or updates objects in order by server-side apply. Objects without a namespace get the given one.
// After a CustomResourceDefinition, it waits until the API server serves the kind.
func (a *Applier) Apply(ctx context.Context, namespace string, objects ...*unstructured.Unstructured) error {
	options := metav1.ApplyOptions{FieldManager: a.manager, Force: true}
	for _, object := range objects {
		resource, err := a.Resource(namespace, object)
		if err == nil {
			_, err = resource.Apply(ctx, object.GetName(), object, options)
		}
		if err == nil && object.GetKind() == "CustomResourceDefinition" {
			err = a.awaitKind(ctx, object)
		}
		if err != nil {
			return fmt.Errorf("apply %s: %w", nameOf(object), err)
		}
	}
	return nil
}

// awaitKind waits until the API server serves the kind of a CustomResourceDefinition.
func (a *Applier) awaitKind(ctx context.Context, definition *unstructured.Unstructured) error {
	group, _, _ := unstructured.NestedString(definition.Object, "spec", "group")
	kind, _, _ := unstructured.NestedString(definition.Object, "spec", "names", "kind")
	err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, definitionTimeout, true,
		func(ctx context.Context) (bool, error) {
			a.mapper.Reset()
			mapping, err := a.mapper.RESTMapping(schema.GroupKind{Group: group, Kind: kind})
			if err == nil {
				_, err = a.client.Resource(mapping.Resource).List(ctx, metav1.ListOptions{Limit: 1})
			}
			return err == nil, nil
		})
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		return fmt.Errorf("the API server does not serve %s after %s", kind, definitionTimeout)
	}
	return nil
}

// ApplyManifest applies the objects of a manifest for a field manager. Objects without a namespace get the given one.
func ApplyManifest(ctx context.Context, config *rest.Config, manager, namespace string, manifest []byte) error {
	objects, err := Decode(manifest)
	if err != nil {
		return err
	}
	applier, err := NewApplier(config, manager)
	if err != nil {
		return err
	}
	return applier.Apply(ctx, namespace, objects...)
}

// IsUnserved reports whether err means that the API server does not serve a kind.
func IsUnserved(err error) bool { return meta.IsNoMatchError(err) || apierrors.IsNotFound(err) }

// Resource returns the client for the kind of an object. The namespace is used if the object has none.
func (a *Applier) Resource(namespace string, object *unstructured.Unstructured) (dynamic.ResourceInterface, error) {
	kind := object.GroupVersionKind()
	mapping, err := a.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		return nil, err
	}
	resource := a.client.Resource(mapping.Resource)
	if mapping.Scope.Name() == meta.RESTScopeNameRoot {
		return resource, nil
	}
	return resource.Namespace(cmp.Or(object.GetNamespace(), namespace)), nil
}
