package access

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
)

// Ready returns nil when a client may begin: the API server reports that it
// is ready, and the namespace default, which comes later, is there.
func Ready(ctx context.Context, config *rest.Config) error {
	client, err := corev1client.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("use the cluster: %w", err)
	}
	if err := client.RESTClient().Get().AbsPath("/readyz").Do(ctx).Error(); err != nil {
		return fmt.Errorf("ask the API server whether it is ready: %w", err)
	}
	if _, err := client.Namespaces().Get(ctx, metav1.NamespaceDefault, metav1.GetOptions{}); err != nil {
		return fmt.Errorf("look for the namespace default: %w", err)
	}
	return nil
}
