package world

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/kv8s/curl-me-that/proto/suitetest"
)

// Deny makes the API server reject ConfigMaps with a key in data, and returns once it does. lift
// ends that.
func (w *World) Deny(ctx context.Context, key string) (lift func(context.Context)) {
	GinkgoHelper()
	api := w.Cluster.Client.AdmissionregistrationV1()
	suitetest.Must(api.ValidatingAdmissionPolicies().Create(ctx, w.denial(key), metav1.CreateOptions{}))
	suitetest.Must(api.ValidatingAdmissionPolicyBindings().Create(ctx, &admissionv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: w.Namespace},
		Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: w.Namespace, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
		},
	}, metav1.CreateOptions{}))
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

// denial is a policy for the namespace of the world.
func (w *World) denial(key string) *admissionv1.ValidatingAdmissionPolicy {
	GinkgoHelper()
	policy := &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: w.Namespace}}
	Expect(yaml.Unmarshal([]byte(`
matchConstraints:
  namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: `+w.Namespace+`}}
  resourceRules: [{operations: [UPDATE], apiGroups: [""], apiVersions: [v1], resources: [configmaps]}]
validations: [{expression: "!has(object.data) || !('`+key+`' in object.data)", message: denied by a test}]
`), &policy.Spec)).To(Succeed())
	return policy
}
