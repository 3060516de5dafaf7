package world

import (
	"context"
	_ "embed" // the policy
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kv8s/curl-me-that/deploy/local/controlplane"
)

// denial is a policy and its binding, with placeholders for the namespace and the key.
//
//go:embed denial.yaml
var denial string

// Deny makes the API server reject ConfigMaps with a key in data, and waits until it does. lift ends that.
func (w *World) Deny(ctx context.Context, key string) (lift func(context.Context)) {
	GinkgoHelper()
	manifest := strings.NewReplacer("NAMESPACE", w.Namespace, "KEY", key).Replace(denial)
	Expect(controlplane.ApplyManifest(ctx, w.Cluster.Config, "e2e", "", []byte(manifest))).To(Succeed())
	api := w.Cluster.Client.AdmissionregistrationV1()
	remove := func(ctx context.Context) {
		_ = api.ValidatingAdmissionPolicyBindings().Delete(ctx, w.Namespace, metav1.DeleteOptions{}) // it may be gone
		_ = api.ValidatingAdmissionPolicies().Delete(ctx, w.Namespace, metav1.DeleteOptions{})
	}
	DeferCleanup(func(ctx SpecContext) { remove(ctx) })

	probe := w.Create(ctx, "probe")
	tried := func() error {
		_, err := w.Cluster.Client.CoreV1().ConfigMaps(w.Namespace).Patch(ctx, probe.Name, types.MergePatchType,
			[]byte(`{"data":{"`+key+`":"x"}}`), metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}
	Eventually(tried).WithPolling(eventPolling).ShouldNot(Succeed(), "the policy is in force")
	return func(ctx context.Context) {
		GinkgoHelper()
		remove(ctx)
		Eventually(tried).WithPolling(eventPolling).Should(Succeed(), "the policy is gone")
	}
}
