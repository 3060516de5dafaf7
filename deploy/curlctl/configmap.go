package curlctl

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/cluster"
	"github.com/kv8s/curl-me-that/proto/service"
)

// configMap reads the metadata of a ConfigMap; nil if there is none.
func configMap(ctx context.Context, o cluster.Options, namespace, name string) (*metav1.PartialObjectMetadata, error) {
	object, err := o.ConfigMap(ctx, namespace, name)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil //nolint:nilnil // that it is gone is an answer
	case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
		return nil, service.ExitError{Err: fmt.Errorf("this Kubernetes user may not get ConfigMap %s/%s", namespace, name), Code: exitPermission}
	case err != nil:
		return nil, fmt.Errorf("%w: %w", errNoCluster, err)
	}
	return object, nil
}
