package manifest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
)

// manager is the field manager of kubectl apply.
const manager = "kubectl"

// bufferSize is how much of a file is looked at to distinguish YAML from JSON.
const bufferSize = 4096

// Decode reads all objects of a file.
func Decode(file []byte) ([]*unstructured.Unstructured, error) {
	var objects []*unstructured.Unstructured
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(file), bufferSize)
	for {
		o := &unstructured.Unstructured{}
		err := decoder.Decode(&o.Object)
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err != nil {
			return nil, fmt.Errorf("decode manifest %d: %w", len(objects)+1, err)
		}
		if len(o.Object) > 0 {
			objects = append(objects, o)
		}
	}
}

// Client applies and deletes objects of any kind that the cluster knew when the
// client was made.
type Client struct {
	client dynamic.Interface
	mapper meta.RESTMapper
}

// NewClient asks the cluster what kinds it knows.
func NewClient(config *rest.Config) (*Client, error) {
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	kinds, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	resources, err := restmapper.GetAPIGroupResources(kinds)
	if err != nil {
		return nil, fmt.Errorf("ask for the kinds of the cluster: %w", err)
	}
	return &Client{client: client, mapper: restmapper.NewDiscoveryRESTMapper(resources)}, nil
}

// Apply creates or updates the objects, in their order, by server-side apply.
// Those that name no namespace go to the given one.
func (c *Client) Apply(ctx context.Context, namespace string, objects []*unstructured.Unstructured) error {
	for _, o := range objects {
		resource, err := c.resource(namespace, o)
		if err != nil {
			return err
		}
		_, err = resource.Apply(ctx, o.GetName(), o, metav1.ApplyOptions{FieldManager: manager, Force: true})
		if err != nil {
			return fmt.Errorf("apply %s %s: %w", o.GetKind(), o.GetName(), err)
		}
	}
	return nil
}

// Delete deletes the objects, the last first, and what belongs to them. Those
// that are not there are none to complain of.
func (c *Client) Delete(ctx context.Context, namespace string, objects []*unstructured.Unstructured) error {
	for _, o := range slices.Backward(objects) {
		resource, err := c.resource(namespace, o)
		if err != nil {
			return err
		}
		err = resource.Delete(ctx, o.GetName(), metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationBackground)})
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("delete %s %s: %w", o.GetKind(), o.GetName(), err)
		}
	}
	return nil
}

func (c *Client) resource(namespace string, o *unstructured.Unstructured) (dynamic.ResourceInterface, error) {
	kind := o.GroupVersionKind()
	mapping, err := c.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		return nil, fmt.Errorf("find %s: %w", kind, err)
	}
	resource := c.client.Resource(mapping.Resource)
	if mapping.Scope.Name() == meta.RESTScopeNameRoot {
		return resource, nil
	}
	if own := o.GetNamespace(); own != "" {
		namespace = own
	}
	return resource.Namespace(namespace), nil
}
