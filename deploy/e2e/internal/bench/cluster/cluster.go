// Package cluster is the API server that the benchmark runs against, as its
// client sees it.
package cluster

import (
	"context"
	"fmt"
	"net/http"

	"github.com/rs/zerolog"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"

	"github.com/kv8s/curl-me-that/proto/service/kube"
)

// InFlight is the number of requests at a time. With more an API server on two
// cores answers later, not faster.
const InFlight = 32

// Cluster is a client of the API server, without a limit of its own.
type Cluster struct {
	// Kubernetes and Metadata are the clients.
	Kubernetes kubernetes.Interface
	Metadata   metadata.Interface
	own        *tally
}

// Connect uses the cluster of $KUBECONFIG. It silences the log of Kubernetes'
// libraries, which only repeats the errors that they return.
func Connect() (*Cluster, error) {
	kube.BridgeKlog(zerolog.Nop())
	options := kube.Options{}
	config, err := options.Config("bench")
	if err != nil {
		return nil, err
	}
	own := newTally()
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return counting{next: next, tally: own} })
	c := &Cluster{own: own}
	if c.Kubernetes, err = kubernetes.NewForConfig(config); err != nil {
		return nil, fmt.Errorf("use the cluster: %w", err)
	}
	if c.Metadata, err = metadata.NewForConfig(metadata.ConfigFor(config)); err != nil {
		return nil, fmt.Errorf("use the cluster: %w", err)
	}
	return c, nil
}

// Version returns the version of the API server.
func (c *Cluster) Version(ctx context.Context) (string, error) {
	info, err := c.Kubernetes.Discovery().ServerVersionWithContext(ctx)
	if err != nil {
		return "", fmt.Errorf("ask the API server for its version: %w", err)
	}
	return info.GitVersion, nil
}
