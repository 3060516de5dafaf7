// Package watchers holds the resource Watcher to what it promises, on a real API
// server with the real programs.
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
	// api reaches resources that client-go has no types of.
	api dynamic.Interface
)

var _ = BeforeSuite(func(ctx SpecContext) {
	env = world.Open()
	api = env.Cluster.ServeWatchers(ctx)
})

// manifest returns the Watcher that YAML below apiVersion and kind describes.
func manifest(text string) *unstructured.Unstructured {
	GinkgoHelper()
	o := &unstructured.Unstructured{}
	Expect(yaml.Unmarshal([]byte(text), &o.Object)).To(Succeed())
	o.SetAPIVersion(watchv1.GroupVersion().String())
	o.SetKind(watchv1.Kind)
	return o
}
