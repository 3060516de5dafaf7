package world

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/kv8s/curl-me-that/proto/suitetest"
	"github.com/kv8s/curl-me-that/proto/watch/crd"
	watchv1 "github.com/kv8s/curl-me-that/proto/watch/v1alpha1"
)

// ServeWatchers installs the CRD of Watchers and returns a client for them. Other suites may do so
// at the same time, and none removes the CRD.
func (c *Cluster) ServeWatchers(ctx context.Context) dynamic.Interface {
	GinkgoHelper()
	client := suitetest.Must(dynamic.NewForConfig(c.Config))
	body := suitetest.Must(yaml.YAMLToJSON(crd.Watchers))
	definitions := client.Resource(schema.GroupVersionResource{
		Group: "apiextensions.k8s.io", Version: "v1",
		Resource: "customresourcedefinitions",
	})
	suitetest.Must(definitions.Patch(ctx, "watchers.watch.x-kv8s.io", types.ApplyPatchType, body,
		metav1.PatchOptions{FieldManager: "e2e", Force: new(true), FieldValidation: metav1.FieldValidationStrict}))
	Eventually(ctx, func() error {
		_, err := client.Resource(watchv1.Resource()).List(ctx, metav1.ListOptions{Limit: 1})
		return err
	}).Should(Succeed())
	return client
}
