package writer_test

import (
	"fmt"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admission "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kv8s/curl-me-that/deploy/testkit/kubetest"
	"github.com/kv8s/curl-me-that/proto/annotation"
)

// A policy applies to updates of ConfigMaps, and its binding limits it to one namespace.
const (
	policy = `
apiVersion: admissionregistration.k8s.io/v1
kind: %[1]sAdmissionPolicy
metadata: {name: %[2]s}
spec:
  failurePolicy: Fail
  matchConstraints:
    resourceRules: [{operations: [UPDATE], apiGroups: [""], apiVersions: [v1], resources: [configmaps]}]
%[3]s`
	binding = `
apiVersion: admissionregistration.k8s.io/v1
kind: %[1]sAdmissionPolicyBinding
metadata: {name: %[2]s}
spec:
  policyName: %[2]s
  matchResources: {namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: %[2]s}}}
%[3]s`
	stripping = `
  reinvocationPolicy: Never
  matchConditions:
  - name: annotated
    expression: "'x-kv8s.io/curl-status' in object.metadata.?annotations.orValue({})"
  mutations:
  - patchType: JSONPatch
    jsonPatch: {expression: '[JSONPatch{op: "remove", path: "/metadata/annotations/x-kv8s.io~1curl-status"}]'}`
)

// admitBy creates a policy of a kind and its binding.
func (w *world) admitBy(kind, rules, actions string) {
	GinkgoHelper()
	resource := strings.ToLower(kind) + "admissionpolic"
	w.admit(resource+"ies", fmt.Sprintf(policy, kind, w.namespace, rules))
	w.admit(resource+"ybindings", fmt.Sprintf(binding, kind, w.namespace, actions))
}

// forbid makes the API server refuse changes of ConfigMaps in the namespace unless the expression
// holds, and waits until it does.
func (w *world) forbid(unless string) {
	GinkgoHelper()
	unless += " || request.userInfo.username == 'nobody'"
	w.admitBy("Validating", fmt.Sprintf("  validations: [{expression: %q}]", unless), "  validationActions: [Deny]")
	w.awaitAdmission(func(_ *corev1.ConfigMap, err error) bool {
		return err != nil && strings.Contains(err.Error(), "denied request")
	})
}

// permit removes the restriction of forbid.
func (w *world) permit() {
	_ = person.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().Delete(w.ctx(), w.namespace,
		metav1.DeleteOptions{})
}

const webhooks = `
apiVersion: admissionregistration.k8s.io/v1
kind: %[1]s
metadata: {name: %[2]s}
webhooks:
- name: hook.example.com
  admissionReviewVersions: [v1]
  clientConfig: {url: %[3]q, caBundle: %[4]s}
  failurePolicy: Fail
  sideEffects: None
  timeoutSeconds: 29
  namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: %[2]s}}
  rules: [{operations: [UPDATE], apiGroups: [""], apiVersions: [v1], resources: [configmaps]}]
`

// admit creates a webhook or policy with the name of the namespace until the end of the spec.
func (w *world) admit(resource, manifest string) {
	GinkgoHelper()
	api := person.AdmissionregistrationV1().RESTClient()
	Expect(api.Post().Resource(resource).SetHeader("Content-Type", "application/yaml").Body([]byte(manifest)).
		Do(w.ctx()).Error()).To(Succeed())
	DeferCleanup(func() { _ = api.Delete().Resource(resource).Name(w.namespace).Do(w.ctx()).Error() })
}

// webhook runs a TLS webhook for updates of objects named broken-…, and waits until the API server calls it. A nil
// response lets the update pass.
func (w *world) webhook(kind string, respond func() *admission.AdmissionResponse) {
	GinkgoHelper()
	called := make(chan struct{}, 1)
	address, bundle := kubetest.Webhook(GinkgoTB(), func(r *admission.AdmissionRequest) *admission.AdmissionResponse {
		select {
		case called <- struct{}{}:
		default:
		}
		if strings.HasPrefix(r.Name, "broken-") {
			return respond()
		}
		return nil
	})
	w.admit(strings.ToLower(kind)+"s", fmt.Sprintf(webhooks, kind, w.namespace, address, bundle))
	w.awaitAdmission(func(*corev1.ConfigMap, error) bool { return len(called) > 0 })
}

// strip makes a policy remove our status from each update in the namespace, and waits until it does.
func (w *world) strip() {
	GinkgoHelper()
	kubetest.NeedMutatingPolicies(GinkgoTB(), w.cluster)
	w.admitBy("Mutating", stripping, "")
	w.awaitAdmission(func(cm *corev1.ConfigMap, err error) bool {
		return err == nil && cm.Annotations[annotation.StatusKey] == ""
	})
}

// awaitAdmission updates an object until the outcome shows that admission is in force.
func (w *world) awaitAdmission(inForce func(*corev1.ConfigMap, error) bool) {
	GinkgoHelper()
	probe := w.create(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "probe"}})
	probe.ResourceVersion = ""
	Eventually(func() bool {
		probe.Annotations = map[string]string{annotation.StatusKey: "{}", "now": time.Now().String()}
		probe.Data = map[string]string{"mydata": time.Now().String()}
		return inForce(w.maps().Update(w.ctx(), probe, metav1.UpdateOptions{}))
	}).WithPolling(50 * time.Millisecond).Should(BeTrue())
}
