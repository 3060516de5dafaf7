package admission_test

import (
	"context"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/manifest"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
	"github.com/kv8s/curl-me-that/proto/suitetest"
)

const (
	chart   = "../../chart"
	release = "curl-me-that"
)

// render returns the objects from the given templates of the chart.
func render(ctx context.Context, namespace string, templates []string, set ...string) []*unstructured.Unstructured {
	GinkgoHelper()
	objects := suitetest.Must(manifest.Render(ctx, manifest.Chart{
		Dir: chart, Release: release, Namespace: namespace, Templates: templates,
		Set: append(set, "networkPolicy.enabled=false"),
	}))
	return objects
}

// within limits the bindings of policies to one namespace, because other suites use the API server
// at the same time.
func within(namespace string, objects []*unstructured.Unstructured) []*unstructured.Unstructured {
	GinkgoHelper()
	for _, o := range objects {
		if o.GetKind() == "ValidatingAdmissionPolicyBinding" {
			Expect(unstructured.SetNestedField(o.Object, namespace,
				"spec", "matchResources", "namespaceSelector", "matchLabels", corev1.LabelMetadataName)).To(Succeed())
		}
	}
	return objects
}

// install creates objects for the duration of the spec.
func install(ctx context.Context, objects []*unstructured.Unstructured) {
	GinkgoHelper()
	apply(ctx, env.Cluster.Config, objects)
	DeferCleanup(func(ctx SpecContext) { remove(ctx, env.Cluster.Config, objects) })
}

// apply creates objects, and remove deletes them.
func apply(ctx context.Context, config *rest.Config, objects []*unstructured.Unstructured) {
	GinkgoHelper()
	for _, o := range objects {
		_, err := resource(config, o).Create(ctx, o, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred(), "%s %s", o.GetKind(), o.GetName())
	}
}

func remove(ctx context.Context, config *rest.Config, objects []*unstructured.Unstructured) {
	GinkgoHelper()
	for _, o := range objects {
		Expect(resource(config, o).Delete(ctx, o.GetName(), metav1.DeleteOptions{})).To(Succeed())
	}
}

// resource is where an object is kept.
func resource(config *rest.Config, o *unstructured.Unstructured) dynamic.ResourceInterface {
	GinkgoHelper()
	client := suitetest.Must(dynamic.NewForConfig(config))
	plural, _ := meta.UnsafeGuessKindToResource(o.GroupVersionKind())
	if o.GetNamespace() != "" {
		return client.Resource(plural).Namespace(o.GetNamespace())
	}
	return client.Resource(plural)
}

// only returns the objects that keep selects.
func only(objects []*unstructured.Unstructured,
	keep func(schema.GroupVersionKind, string) bool,
) []*unstructured.Unstructured {
	var kept []*unstructured.Unstructured
	for _, o := range objects {
		if keep(o.GroupVersionKind(), o.GetName()) {
			kept = append(kept, o)
		}
	}
	return kept
}

// writer creates the writer's service account with the rights from the chart. If the policy is
// installed, writer returns once it is in force.
func writer(ctx context.Context, namespace string, policy bool) *world.Account {
	GinkgoHelper()
	objects := render(ctx, namespace, []string{"serviceaccounts.yaml", "rbac.yaml"})
	install(ctx, only(objects, func(kind schema.GroupVersionKind, name string) bool {
		return strings.HasSuffix(name, "-writer") && kind.Kind != "Role" && kind.Kind != "RoleBinding"
	}))
	account := env.Cluster.ExistingAccount(ctx, namespace, release+"-writer")
	if !policy {
		return account
	}
	install(ctx, render(ctx, namespace, []string{"admission-writer.yaml"}))
	// The probe needs a namespace of its own, because a world records all writes in its namespace.
	probe := create(ctx, env.Cluster.Namespace(ctx),
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "probe-"}})
	Eventually(ctx, func() error {
		return patch(ctx, account, probe, `{"data":{"probe":"x"}}`)
	}).Should(MatchError(ContainSubstring("the writer leaves ConfigMaps without the annotation alone")),
		"the policy is in force")
	return account
}
