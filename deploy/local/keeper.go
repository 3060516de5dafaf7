package local

import (
	"context"
	_ "embed" // the policies
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/kv8s/curl-me-that/deploy/local/controlplane/access"
	"github.com/kv8s/curl-me-that/proto/process"
	"github.com/kv8s/curl-me-that/proto/watch/crd"
	watchv1 "github.com/kv8s/curl-me-that/proto/watch/v1alpha1"
	"github.com/kv8s/curl-me-that/watcher/keeper"
)

// keeperName is the name of the service for Watchers.
const keeperName = "keeper"

// definitionTimeout is how long the API server may take to serve Watchers.
const definitionTimeout = 30 * time.Second

// runKeeper runs keeper with the watcher's flags, which both have.
func (c *Config) runKeeper(ctx context.Context, rt *process.Runtime, cluster *rest.Config) error {
	if err := serveWatchers(ctx, cluster); err != nil {
		return err
	}
	sidecars, err := c.injectSidecars(ctx, cluster)
	if err != nil {
		return err
	}
	return keeper.Run(ctx, rt, keeper.Config{
		Sidecars:   sidecars,
		Namespaces: c.Watcher.Namespaces, Protected: c.Watcher.Protected, Selector: c.Watcher.Selector,
		Grammar: c.Watcher.Grammar, Workers: keeper.DefaultWorkers,
	}, cluster)
}

// serveWatchers installs the CRD of Watchers and waits until the API server serves it.
func serveWatchers(ctx context.Context, cluster *rest.Config) error {
	if err := apply(ctx, cluster, crd.Watchers); err != nil {
		return fmt.Errorf("--watchers: install the definition: %w", err)
	}
	client, err := dynamic.NewForConfig(cluster)
	if err != nil {
		return fmt.Errorf("use the cluster: %w", err)
	}
	err = wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, definitionTimeout, true,
		func(ctx context.Context) (bool, error) {
			_, err := client.Resource(watchv1.Resource()).List(ctx, metav1.ListOptions{Limit: 1})
			return err == nil, nil
		})
	if err != nil {
		return fmt.Errorf("--watchers: the API server does not serve them after %s", definitionTimeout)
	}
	return nil
}

// policies of the chart that add the sidecars of Watchers to pods.
//
//go:embed policies.yaml
var policies []byte

// injectSidecars installs the policies where they are wanted, and reports whether
// they are there.
func (c *Config) injectSidecars(ctx context.Context, cluster *rest.Config) (bool, error) {
	if !c.Sidecars && !c.ours {
		return false, nil
	}
	err := apply(ctx, cluster, policies)
	switch {
	case access.IsUnserved(err) && c.Sidecars:
		return false, errors.New("--sidecars: this API server has no MutatingAdmissionPolicy in " +
			"admissionregistration.k8s.io/v1: use Kubernetes 1.36 or later")
	case access.IsUnserved(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("install the policies of sidecars: %w", err)
	}
	return true, nil
}

// apply installs the objects of a manifest.
func apply(ctx context.Context, cluster *rest.Config, manifest []byte) error {
	objects, err := access.Decode(manifest)
	if err != nil {
		return err
	}
	applier, err := access.NewApplier(cluster, "curl-me-that")
	if err != nil {
		return err
	}
	return applier.Apply(ctx, "", objects...)
}
