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

const denial = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: %[1]s}
spec:
  failurePolicy: Fail
  matchConstraints:
    resourceRules: [{operations: [UPDATE], apiGroups: [""], apiVersions: [v1], resources: [configmaps]}]
  validations: [{expression: %[2]q}]
`

const denialBinding = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: %[1]s}
spec:
  policyName: %[1]s
  validationActions: [Deny]
  matchResources: {namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: %[1]s}}}
`

// forbid makes the API server refuse changes of ConfigMaps in the namespace unless the expression
// holds, and waits until it does.
func forbid(w *world, unless string) {
	GinkgoHelper()
	w.admit("validatingadmissionpolicies",
		fmt.Sprintf(denial, w.namespace, unless+" || request.userInfo.username == 'nobody'"))
	w.admit("validatingadmissionpolicybindings", fmt.Sprintf(denialBinding, w.namespace))
	probe := w.create(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "probe"}})
	Eventually(func() error {
		probe.Data = map[string]string{"mydata": time.Now().String()}
		_, err := w.kube.CoreV1().ConfigMaps(w.namespace).Update(w.ctx(), probe,
			metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}).Should(MatchError(ContainSubstring("denied request")))
}

// permit removes the restriction of forbid.
func permit(w *world) {
	_ = w.kube.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().Delete(w.ctx(), w.namespace,
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

const stripping = `
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: %[1]s}
spec:
  failurePolicy: Fail
  reinvocationPolicy: Never
  matchConstraints:
    resourceRules: [{operations: [UPDATE], apiGroups: [""], apiVersions: [v1], resources: [configmaps]}]
  matchConditions:
  - name: annotated
    expression: "'x-kv8s.io/curl-status' in object.metadata.?annotations.orValue({})"
  mutations:
  - patchType: JSONPatch
    jsonPatch: {expression: '[JSONPatch{op: "remove", path: "/metadata/annotations/x-kv8s.io~1curl-status"}]'}
`

const binding = `
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: %[1]s}
spec:
  policyName: %[1]s
  matchResources: {namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: %[1]s}}}
`

// admit creates a webhook or policy with the name of the namespace until the end of the spec.
func (w *world) admit(resource, manifest string) {
	GinkgoHelper()
	api := w.kube.AdmissionregistrationV1().RESTClient()
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
	w.awaitAdmission(func(*corev1.ConfigMap) bool { return len(called) > 0 })
}

// strip makes a policy remove our status from each update in the namespace, and waits until it does.
func (w *world) strip() {
	GinkgoHelper()
	kubetest.NeedMutatingPolicies(GinkgoTB(), w.cluster)
	w.admit("mutatingadmissionpolicies", fmt.Sprintf(stripping, w.namespace))
	w.admit("mutatingadmissionpolicybindings", fmt.Sprintf(binding, w.namespace))
	w.awaitAdmission(func(cm *corev1.ConfigMap) bool { return cm.Annotations[annotation.StatusKey] == "" })
}

func (w *world) awaitAdmission(inForce func(*corev1.ConfigMap) bool) {
	GinkgoHelper()
	w.create(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "probe"}})
	Eventually(func() bool {
		return inForce(w.edit("probe", func(cm *corev1.ConfigMap) {
			cm.Annotations = map[string]string{annotation.StatusKey: "{}", "now": time.Now().String()}
		}))
	}).WithPolling(50 * time.Millisecond).Should(BeTrue())
}
