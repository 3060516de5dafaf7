package controlplane

import (
	"context"
	"fmt"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// tokenLifetime is long, because tokens are renewed only when the services start again.
const tokenLifetime = 365 * 24 * time.Hour

// Account returns a copy of the administrator's kubeconfig with a token for a service account instead.
func Account(ctx context.Context, administrator *clientcmdapi.Config, namespace, name string) (*clientcmdapi.Config,
	error,
) {
	config, err := ClientConfig(administrator)
	if err != nil {
		return nil, err
	}
	client, err := corev1client.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("use the administrator's kubeconfig: %w", err)
	}
	seconds := int64(tokenLifetime / time.Second)
	token, err := client.ServiceAccounts(namespace).CreateToken(ctx, name,
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds}},
		metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("request a token of service account %s/%s: %w", namespace, name, err)
	}
	own := administrator.DeepCopy()
	current := own.Contexts[own.CurrentContext]
	own.AuthInfos = map[string]*clientcmdapi.AuthInfo{name: {Token: token.Status.Token}}
	current.AuthInfo = name
	return own, nil
}

// At returns a copy of a kubeconfig with another URL of the API server.
func At(config *clientcmdapi.Config, server string) *clientcmdapi.Config {
	moved := config.DeepCopy()
	moved.Clusters[moved.Contexts[moved.CurrentContext].Cluster].Server = server
	return moved
}

// ClientConfig returns the client configuration of a kubeconfig.
func ClientConfig(config *clientcmdapi.Config) (*rest.Config, error) {
	client, err := clientcmd.NewDefaultClientConfig(*config, nil).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("use the kubeconfig: %w", err)
	}
	return client, nil
}
