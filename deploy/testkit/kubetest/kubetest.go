// Package kubetest has helpers for tests with an API server, for testing and Ginkgo (GinkgoTB).
// They fail the test on errors, and clean up after it.
package kubetest

import (
	"context"
	"net/http"
	"os"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Config returns the client configuration of KUBECONFIG.
func Config(tb testing.TB) *rest.Config {
	tb.Helper()
	path := os.Getenv(clientcmd.RecommendedConfigPathEnvVar)
	if path == "" {
		tb.Fatal("this test needs an API server: run `make test`, which starts one, or set KUBECONFIG")
	}
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		tb.Fatal(err)
	}
	config.QPS, config.Burst = -1, 0
	return config
}

// RoundTripper sends a request, for rest.Config.Wrap.
type RoundTripper func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f RoundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// May returns the permission to use a resource.
func May(group, resource string, verbs ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{resource}, Verbs: verbs}
}

// Namespace creates a namespace until the test ends, and returns its name.
func Namespace(ctx context.Context, tb testing.TB, client kubernetes.Interface, prefix string,
	labels map[string]string,
) string {
	tb.Helper()
	namespaces := client.CoreV1().Namespaces()
	created, err := namespaces.Create(ctx,
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: prefix, Labels: labels}}, metav1.CreateOptions{})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := namespaces.Delete(context.WithoutCancel(ctx), created.Name, metav1.DeleteOptions{}); err != nil {
			tb.Log(err)
		}
	})
	return created.Name
}

// NeedMutatingPolicies skips the test if the API server has no MutatingAdmissionPolicy.
func NeedMutatingPolicies(tb testing.TB, config *rest.Config) {
	tb.Helper()
	if !HasMutatingPolicies(tb, config) {
		tb.Skip("this API server has no MutatingAdmissionPolicy")
	}
}

// HasMutatingPolicies reports whether the API server has MutatingAdmissionPolicy, as from Kubernetes 1.36.
func HasMutatingPolicies(tb testing.TB, config *rest.Config) bool {
	tb.Helper()
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		tb.Fatal(err)
	}
	served, err := client.Discovery().ServerResourcesForGroupVersion("admissionregistration.k8s.io/v1")
	if err != nil {
		tb.Fatal(err)
	}
	return slices.ContainsFunc(served.APIResources, func(r metav1.APIResource) bool {
		return r.Name == "mutatingadmissionpolicies"
	})
}
