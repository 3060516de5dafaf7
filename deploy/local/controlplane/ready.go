package controlplane

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
)

// Ready returns nil if clients can start: the API server reports that it is ready, and the namespace default
// exists, which takes longer.
func Ready(ctx context.Context, config *rest.Config) error {
	client, err := corev1client.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("use the cluster: %w", err)
	}
	for _, path := range []string{"/readyz", "/api/v1/namespaces/" + metav1.NamespaceDefault} {
		// No retries, because a starting API server may request a pause of a second before each.
		if err := client.RESTClient().Get().AbsPath(path).MaxRetries(0).Do(ctx).Error(); err != nil {
			return fmt.Errorf("ask the API server for %s: %w", path, err)
		}
	}
	return nil
}
