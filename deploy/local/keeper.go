package local

import (
	"context"
	_ "embed" // the policies
	"errors"
	"fmt"

	"k8s.io/client-go/rest"

	"github.com/kv8s/curl-me-that/deploy/local/controlplane"
	"github.com/kv8s/curl-me-that/proto/process"
	"github.com/kv8s/curl-me-that/proto/watch/v1alpha1"
	"github.com/kv8s/curl-me-that/watcher/keeper"
)

// keeperName is the name of the service for Watchers.
const keeperName = "keeper"

// manager is the field manager of installed objects.
const manager = "curl-me-that"

// runKeeper installs the CRD of Watchers and runs keeper with the flags that it has in common with the watcher.
func (c *Config) runKeeper(ctx context.Context, rt *process.Runtime, cluster *rest.Config) error {
	if err := controlplane.ApplyManifest(ctx, cluster, manager, "", v1alpha1.Definition); err != nil {
		return fmt.Errorf("--watchers: install the definition: %w", err)
	}
	sidecars, err := c.injectSidecars(ctx, cluster)
	if err != nil {
		return err
	}
	return keeper.Run(ctx, rt, keeper.Config{
		Sidecars:  sidecars,
		Selection: c.Watcher.Selection, Namespaces: c.Watcher.Namespaces, Workers: keeper.DefaultWorkers,
	}, cluster)
}

// policies are the chart's policies that inject the sidecars of Watchers into pods.
//
//go:embed policies.yaml
var policies []byte

// injectSidecars installs the policies of sidecars if a flag requests them, or if our own control plane supports
// them. It reports whether they are installed.
func (c *Config) injectSidecars(ctx context.Context, cluster *rest.Config) (bool, error) {
	if !c.Sidecars && !c.ours {
		return false, nil
	}
	err := controlplane.ApplyManifest(ctx, cluster, manager, "", policies)
	switch {
	case controlplane.IsUnserved(err) && c.Sidecars:
		return false, errors.New("--sidecars: this API server has no MutatingAdmissionPolicy in " +
			"admissionregistration.k8s.io/v1: use Kubernetes 1.36 or later")
	case controlplane.IsUnserved(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("install the policies of sidecars: %w", err)
	}
	return true, nil
}
