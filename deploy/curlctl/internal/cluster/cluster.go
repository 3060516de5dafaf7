// Package cluster reads ConfigMaps' metadata, as kubectl would.
package cluster

import (
	"context"
	"fmt"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Options select the cluster to read.
type Options struct {
	// Kubeconfig is a file; empty: $KUBECONFIG, else ~/.kube/config.
	Kubeconfig string
	// Context in the kubeconfig; empty: its current one.
	Context string
}

// BindFlags adds the flags of the options.
func (o *Options) BindFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.Kubeconfig, "kubeconfig", "", "kubeconfig file; without it $KUBECONFIG, else ~/.kube/config")
	fs.StringVar(&o.Context, "kube-context", "", "context in the kubeconfig; without it the current one")
}

// Config returns how to reach the cluster: by the options, or, in a pod that has
// no kubeconfig, by its service account.
func (o *Options) Config() (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = o.Kubeconfig
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules,
		&clientcmd.ConfigOverrides{CurrentContext: o.Context}).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig: %w", err)
	}
	return config, nil
}

// ConfigMap reads the metadata of a ConfigMap: it needs the right to get it, and
// its data is not sent.
func (o *Options) ConfigMap(ctx context.Context, namespace, name string) (*metav1.PartialObjectMetadata, error) {
	config, err := o.Config()
	if err != nil {
		return nil, err
	}
	web, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("use kubeconfig: %w", err)
	}
	defer utilnet.CloseIdleConnectionsFor(web.Transport)
	client, err := metadata.NewForConfigAndClient(config, web)
	if err != nil {
		return nil, fmt.Errorf("use kubeconfig: %w", err)
	}
	object, err := client.Resource(corev1.SchemeGroupVersion.WithResource("configmaps")).Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("read ConfigMap %s/%s: %w", namespace, name, err)
	}
	return object, nil
}
