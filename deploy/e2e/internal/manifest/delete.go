package manifest

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kv8s/curl-me-that/deploy/local/controlplane/access"
)

// Manager is the field manager of kubectl apply.
const Manager = "kubectl"

// Delete deletes applied objects and their dependents, the last one first. It ignores
// missing objects.
func Delete(ctx context.Context, a *access.Applier, namespace string, objects []*unstructured.Unstructured) error {
	for _, o := range slices.Backward(objects) {
		resource, err := a.Resource(namespace, o)
		if err != nil {
			return fmt.Errorf("delete %s %s: %w", o.GetKind(), o.GetName(), err)
		}
		err = resource.Delete(ctx, o.GetName(),
			metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationBackground)})
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("delete %s %s: %w", o.GetKind(), o.GetName(), err)
		}
	}
	return nil
}
