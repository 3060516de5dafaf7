// Package watchers holds the resource Watcher to what it promises, on a real API
// server with the real programs.
package watchers_test

import (
	"context"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
	"github.com/kv8s/curl-me-that/proto/watch/crd"
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
	var err error
	api, err = dynamic.NewForConfig(env.Cluster.Config)
	Expect(err).NotTo(HaveOccurred())
	installDefinition(ctx)
})

// installDefinition lets the API server serve Watchers. Other suites may do so at
// the same time, and none takes the definition away.
func installDefinition(ctx context.Context) {
	GinkgoHelper()
	body, err := yaml.YAMLToJSON(crd.Watchers)
	Expect(err).NotTo(HaveOccurred())
	definitions := api.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	_, err = definitions.Patch(ctx, "watchers.watch.x-kv8s.io", types.ApplyPatchType, body,
		metav1.PatchOptions{FieldManager: "e2e", Force: new(true), FieldValidation: metav1.FieldValidationStrict})
	Expect(err).NotTo(HaveOccurred())
	Eventually(ctx, func() error {
		_, err := api.Resource(watchv1.Resource()).List(ctx, metav1.ListOptions{Limit: 1})
		return err
	}).Should(Succeed())
}

// manifest returns the Watcher that YAML below apiVersion and kind describes.
func manifest(text string) *unstructured.Unstructured {
	GinkgoHelper()
	o := &unstructured.Unstructured{}
	Expect(yaml.Unmarshal([]byte(text), &o.Object)).To(Succeed())
	o.SetAPIVersion(watchv1.GroupVersion().String())
	o.SetKind(watchv1.Kind)
	return o
}
