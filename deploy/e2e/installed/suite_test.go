// Package installed checks an existing installation against the promises to users. Package installation lists
// the environment variables.
package installed_test

import (
	"context"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/installation"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
)

func TestInstalled(t *testing.T) { installation.Run(t, "Installed") }

var i *installation.Installation

var _ = BeforeSuite(func(ctx SpecContext) { i = installation.Open(ctx) })

// shouldNotChange checks that the ConfigMap does not change for a while.
func shouldNotChange(ctx context.Context, cm *world.ConfigMap) {
	GinkgoHelper()
	version := cm.Get(ctx).ResourceVersion
	Consistently(ctx, func() string { return cm.Get(ctx).ResourceVersion }).Should(Equal(version))
}
