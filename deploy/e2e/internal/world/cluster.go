package world

import (
	"context"
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kv8s/curl-me-that/proto/suitetest"
)

// Cluster is a real API server with administrator access.
type Cluster struct {
	// Kubeconfig is the administrator's.
	Kubeconfig string
	// Config is its content.
	Config *rest.Config
	// Client of the administrator.
	Client kubernetes.Interface
}

// OpenCluster reads a kubeconfig.
func OpenCluster(kubeconfig string) (*Cluster, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig %s: %w", kubeconfig, err)
	}
	config.QPS, config.UserAgent = -1, "curl-me-that-e2e"
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("use kubeconfig %s: %w", kubeconfig, err)
	}
	return &Cluster{Kubeconfig: kubeconfig, Config: config, Client: client}, nil
}

// Namespace creates a namespace that lives as long as the spec.
func (c *Cluster) Namespace(ctx context.Context) string {
	GinkgoHelper()
	created := suitetest.Must(c.Client.CoreV1().Namespaces().Create(ctx,
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "curl-me-that-e2e-"}}, metav1.CreateOptions{}))
	DeferCleanup(func(ctx SpecContext) {
		// Without controllers the namespace is never gone. The control plane does not
		// live long.
		_ = c.Client.CoreV1().Namespaces().Delete(ctx, created.Name, metav1.DeleteOptions{})
	})
	return created.Name
}
