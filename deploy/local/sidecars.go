package local

import (
	"bytes"
	"context"
	_ "embed" // the policies
	"encoding/json"
	"errors"
	"fmt"
	"io"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

// policies of the chart by which pods get the sidecars of Watchers.
//
//go:embed policies.yaml
var policies []byte

// injectSidecars installs the policies where they are wanted, and reports whether
// they are there.
func (c *Config) injectSidecars(ctx context.Context, cluster *rest.Config) (bool, error) {
	if !c.Sidecars && !c.ours {
		return false, nil
	}
	client, err := dynamic.NewForConfig(cluster)
	if err != nil {
		return false, fmt.Errorf("use the cluster: %w", err)
	}
	decoder := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(policies), 4096)
	for {
		var policy unstructured.Unstructured
		switch err := decoder.Decode(&policy.Object); {
		case errors.Is(err, io.EOF):
			return true, nil
		case err != nil:
			return false, fmt.Errorf("read the policies of sidecars: %w", err)
		case len(policy.Object) == 0:
			continue // comments alone
		}
		switch err := install(ctx, client, &policy); {
		case apierrors.IsNotFound(err) && c.Sidecars:
			return false, errors.New("--sidecars: this API server has no MutatingAdmissionPolicy in admissionregistration.k8s.io/v1; use Kubernetes 1.36 or later")
		case apierrors.IsNotFound(err):
			return false, nil
		case err != nil:
			return false, fmt.Errorf("install the policies of sidecars: %w", err)
		}
	}
}

// install applies an object of the cluster.
func install(ctx context.Context, client dynamic.Interface, o *unstructured.Unstructured) error {
	body, err := json.Marshal(o)
	if err != nil {
		return fmt.Errorf("encode %s %s: %w", o.GetKind(), o.GetName(), err)
	}
	resource, _ := meta.UnsafeGuessKindToResource(o.GroupVersionKind())
	_, err = client.Resource(resource).Patch(ctx, o.GetName(), types.ApplyPatchType, body,
		metav1.PatchOptions{FieldManager: "curl-me-that", Force: new(true)})
	return err
}
