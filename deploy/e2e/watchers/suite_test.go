// Package watchers checks the custom resource Watcher against its promises, on a real API server
// with the real programs.
package watchers_test

import (
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
	watchv1 "github.com/kv8s/curl-me-that/proto/watch/v1alpha1"
)

func TestWatchers(t *testing.T) { world.Run(t, "Watchers") }

var (
	env *world.Environment
	// api is a client for resources without types in client-go.
	api dynamic.Interface
)

var _ = BeforeSuite(func(ctx SpecContext) {
	env = world.Open()
	api = env.Cluster.ServeWatchers(ctx)
})

// manifest returns a Watcher from YAML without apiVersion and kind.
func manifest(text string) *unstructured.Unstructured {
	GinkgoHelper()
	o := &unstructured.Unstructured{}
	Expect(yaml.Unmarshal([]byte(text), &o.Object)).To(Succeed())
	o.SetAPIVersion(watchv1.GroupVersion().String())
	o.SetKind(watchv1.Kind)
	return o
}
