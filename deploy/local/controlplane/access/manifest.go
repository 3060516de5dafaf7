package access

import (
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
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
)

// manager is the field manager of what is applied.
const manager = "control-plane"

// Apply applies all manifests (*.yaml) of the folders by server-side apply, in the
// order of the folders and of the names of the files, and returns what it applied
// as kind/name.
func Apply(ctx context.Context, config *rest.Config, dirs []string) ([]string, error) {
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("use the cluster: %w", err)
	}
	known, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("use the cluster: %w", err)
	}
	a := applier{client: client, mapper: restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(known.Discovery()))}
	for _, dir := range dirs {
		paths, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
		if err != nil {
			return a.applied, fmt.Errorf("list manifests: %w", err)
		}
		for _, path := range paths {
			if err := a.file(ctx, path); err != nil {
				return a.applied, fmt.Errorf("apply %s: %w", path, err)
			}
		}
	}
	return a.applied, nil
}

// definitionTimeout is how long the API server may take to serve a kind whose
// definition was applied.
const definitionTimeout = 30 * time.Second

type applier struct {
	client  dynamic.Interface
	mapper  *restmapper.DeferredDiscoveryRESTMapper
	applied []string
	// defines: a definition of a kind was applied.
	defines bool
}

func (a *applier) file(ctx context.Context, path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	decoder := yaml.NewYAMLOrJSONDecoder(file, 4096)
	for {
		object := &unstructured.Unstructured{}
		err := decoder.Decode(&object.Object)
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case len(object.Object) == 0: // nothing but comments
			continue
		}
		if err := a.object(ctx, object); err != nil {
			return err
		}
	}
}

// object applies an object. One of a kind that the API server does not serve yet is
// tried until it does, if a definition was applied before.
func (a *applier) object(ctx context.Context, object *unstructured.Unstructured) error {
	name := object.GetKind() + "/" + object.GetName()
	err := a.apply(ctx, object)
	if a.defines && isUnserved(err) {
		_ = wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, definitionTimeout, false, func(ctx context.Context) (bool, error) {
			err = a.apply(ctx, object)
			return !isUnserved(err), nil
		})
	}
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	a.applied = append(a.applied, name)
	a.defines = a.defines || object.GetKind() == "CustomResourceDefinition"
	return nil
}

// isUnserved reports whether the API server does not know a kind.
func isUnserved(err error) bool { return meta.IsNoMatchError(err) || apierrors.IsNotFound(err) }

func (a *applier) apply(ctx context.Context, object *unstructured.Unstructured) error {
	kind := object.GroupVersionKind()
	mapping, err := a.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		a.mapper.Reset()
		return err
	}
	var resource dynamic.ResourceInterface = a.client.Resource(mapping.Resource)
	if namespace := object.GetNamespace(); namespace != "" {
		resource = a.client.Resource(mapping.Resource).Namespace(namespace)
	}
	_, err = resource.Apply(ctx, object.GetName(), object, metav1.ApplyOptions{FieldManager: manager, Force: true})
	return err
}
