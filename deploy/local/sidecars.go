package local

import (
	"context"
	_ "embed" // the policies
	"errors"
	"fmt"

	"k8s.io/client-go/rest"

	"github.com/kv8s/curl-me-that/deploy/local/controlplane/access"
)

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
