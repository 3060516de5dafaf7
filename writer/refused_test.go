package writer_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admission "k8s.io/api/admission/v1"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kv8s/curl-me-that/deploy/testkit/kubetest"
	"github.com/kv8s/curl-me-that/proto/annotation"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/signature"
)

var _ = Describe("A body that the API server refuses", func() {
	var w *world

	BeforeEach(func(ctx SpecContext) {
		w = newWorld(ctx)
		w.start()
	})

	patches := func() (n int) {
		for _, call := range w.calls.all() {
			if call == "PATCH configmaps" {
				n++
			}
		}
		return n
	}

	It("has one Event if the object is immutable, and no endless retries", func() {
		immutable := true
		cm := asking("cm", "mydata="+url)
		cm.Immutable = &immutable
		cm = w.create(cm)
		w.apply(w.content(w.want(cm, "mydata", url), "body"))
		got := w.get("cm")
		Expect(got.Data).To(BeEmpty())
		Expect(entry(got, "mydata")).To(And(HaveField("Error", "Immutable"), HaveField("GaveUp", true)))
		w.apply(w.content(due(w.want(cm, "mydata", url)), "other body"))
		Expect(w.get("cm").ResourceVersion).To(Equal(got.ResourceVersion))
		Expect(w.events(cm)).To(ConsistOf("Warning Immutable: the ConfigMap is immutable, so key mydata cannot be written; " +
			"delete it and create it again without immutable: true [why-empty 10]"))
		Expect(patches()).To(Equal(3), "refused, reported in the status, refused")
	})

	It("has one Event if it would make the object too large, and other keys are written", func() {
		big := strings.Repeat("x", 700_000)
		cm := w.create(asking("cm", "a="+url+" b="+url+" c="+url+" d="+url))
		w.together(w.content(w.want(cm, "d", url), "first"), w.content(w.want(cm, "a", url), big),
			w.content(w.want(cm, "b", url), big), w.content(w.want(cm, "c", url), "small"))
		got := w.get("cm")
		Expect(got.Data).To(And(HaveKeyWithValue("a", big), HaveKeyWithValue("c", "small"), HaveLen(3)))
		Expect(entry(got, "b")).To(And(HaveField("Error", "BodyTooLarge"), HaveField("SHA256", "")))
		Expect(w.events(cm)).
			To(ConsistOf("Warning BodyTooLarge: the ConfigMap would exceed 1 MiB with the body for key b (700,000 bytes); " +
				"move the key to another ConfigMap; key b has no value yet [why-empty 9]"))
		By("refusing a request that is too large, too")
		w.apply(w.content(due(w.want(cm, "c", url)), strings.Repeat("\x01", 700_000)))
		got = w.get("cm")
		Expect(got.Data).To(HaveKeyWithValue("c", "small"))
		Expect(entry(got, "c")).To(And(HaveField("Error", "BodyTooLarge"), HaveField("SHA256", sum("small"))))
		Expect(w.events(cm)).To(ContainElement(HaveSuffix("key c keeps its last good value [why-empty 9]")))
		By("recovering when it fits")
		w.apply(w.content(due(w.want(cm, "b", url)), "small"))
		Expect(w.get("cm").Data).To(HaveKeyWithValue("b", "small"))
		Expect(w.events(cm)).To(ContainElement(HavePrefix("Normal Recovered: ")))
	})

	It("becomes a dead letter if it is a page and the key holds none", func() {
		const page = "<!doctype html>\n<title>Sign in</title>"
		cm := w.create(asking("cm", "mydata="+url))
		w.apply(w.content(w.want(cm, "mydata", url), `{"good":true}`))
		w.apply(w.content(due(w.want(cm, "mydata", url)), page))
		Expect(w.get("cm").Data).To(HaveKeyWithValue("mydata", `{"good":true}`))
		letter := w.deadLetters()[0]
		Expect(letter.GetFailure().GetClass()).To(Equal(v1.FailureClass_FAILURE_CLASS_CONTENT_REJECTED))
		Expect(string(letter.GetSnippet())).To(Equal(page))
	})

	It("is not one of 960,000 bytes of UTF-16 text, although it has 3.4 MB as JSON", func() {
		text := strings.Repeat("x\x00", 480_000)
		cm := w.create(asking("cm", "mydata="+url))
		w.apply(w.content(w.want(cm, "mydata", url), text))
		got := w.get("cm")
		Expect(string(got.BinaryData["mydata"])).To(Equal(text))
		Expect(got.Data).To(BeEmpty())
		Expect(entry(got, "mydata")).To(And(HaveField("Error", ""), HaveField("Binary", true)))
		Expect(w.events(cm)).To(BeEmpty())
	})

	It("is acknowledged if there is no room for a status, and written when it is published again", func() {
		cm := asking("cm", "mydata="+url)
		cm.Annotations["other"] = strings.Repeat("x", 256<<10-100)
		cm = w.create(cm)
		w.publish(w.content(w.want(cm, "mydata", url), "body"))
		full := "Warning WriteFailed: the annotations of the ConfigMap leave no room for curl-status (limit 256 KiB); " +
			"key mydata has no value yet; shorten or remove an annotation [why-empty 10]"
		Eventually(func() []string { return w.events(cm) }).Should(ConsistOf(full))
		Expect(w.get("cm").Data).To(BeEmpty())
		w.acknowledged()
		By("emitting one Event however often it is published")
		w.apply(w.content(due(w.want(cm, "mydata", url)), "body"))
		Expect(w.events(cm)).To(HaveLen(1))
		cm = w.edit("cm", func(cm *corev1.ConfigMap) { delete(cm.Annotations, "other") })
		w.apply(w.content(due(w.want(cm, "mydata", url)), "body"))
		Expect(w.get("cm").Data).To(HaveKeyWithValue("mydata", "body"))
		Expect(w.events(cm)).To(ConsistOf(full, HavePrefix("Normal Recovered: ")))
	})

	It("costs one request for many keys of an object without room for a status", func() {
		const keys = 40
		var pairs strings.Builder
		for i := range keys {
			fmt.Fprintf(&pairs, "k%d=%s ", i, url)
		}
		cm := asking("cm", pairs.String())
		cm.Annotations["other"] = strings.Repeat("x", 256<<10-100-pairs.Len())
		cm = w.create(cm)
		var results []*v1.Result
		for i := range keys {
			results = append(results, w.content(w.want(cm, fmt.Sprintf("k%d", i), url), "body"))
		}
		w.together(results[0], results[1:]...)
		Expect(patches()).To(Equal(2), "one for the first key, and one for all others")
		Expect(w.events(cm)).To(HaveLen(keys))
	})

	It("has one Event if a policy forbids it, and is written when it is published again", func() {
		forbid(w, "!has(object.data) || !('mydata' in object.data)")
		cm := w.create(asking("cm", "mydata="+url+" other="+url))
		want := w.want(cm, "mydata", url)
		w.publish(w.content(want, "body"), w.content(w.want(cm, "other", url), "other body"))
		Eventually(func() map[string]string { return w.get("cm").Data }).
			Should(Equal(map[string]string{"other": "other body"}), "one key does not hold up the other")
		Eventually(func() []string { return w.events(cm) }).Should(ConsistOf(
			"Warning WriteFailed: the API server refused to write the body from data.example.com, " +
				"perhaps by an admission policy or webhook; ask the operator, the log of the writer says which; " +
				"key mydata has no value yet; retrying [why-empty 10]"))
		Expect(entry(w.get("cm"), "mydata").Error).To(Equal("WriteFailed"))
		w.acknowledged()
		w.apply(w.content(due(w.want(cm, "mydata", url)), "body"))
		Expect(w.events(cm)).To(HaveLen(1))
		permit(w)
		w.await(func() { w.apply(w.content(due(w.want(cm, "mydata", url)), "body")) },
			func() bool { return len(w.get("cm").Data) == 2 })
		Expect(w.get("cm").Data).To(Equal(map[string]string{"mydata": "body", "other": "other body"}))
		Expect(w.events(cm)).To(ConsistOf(HavePrefix("Warning WriteFailed"), HavePrefix("Normal Recovered")))
	})

	It("has one Event if a policy forbids any change", func() {
		cm := w.create(asking("cm", "mydata="+url))
		forbid(w, "false")
		w.publish(w.failure(w.want(cm, "mydata", url), 500))
		Eventually(func() []string { return w.events(cm) }).Should(ConsistOf(HavePrefix("Warning WriteFailed: ")))
		w.acknowledged()
		permit(w)
		w.await(func() { w.apply(w.failure(due(w.want(cm, "mydata", url)), 500)) },
			func() bool { return entry(w.get("cm"), "mydata").Failing() })
		Expect(entry(w.get("cm"), "mydata").Error).To(Equal("BadStatus"))
		Expect(w.events(cm)).To(ConsistOf(HavePrefix("Warning WriteFailed: "), HavePrefix("Warning BadStatus: ")))
	})
})

// forbid makes the API server refuse changes of ConfigMaps in the namespace unless the expression
// holds, and waits until it does.
func forbid(w *world, unless string) {
	GinkgoHelper()
	fail := admissionv1.Fail
	policy := &admissionv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: w.namespace},
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			FailurePolicy: &fail,
			MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{
				RuleWithOperations: admissionv1.RuleWithOperations{
					Operations: []admissionv1.OperationType{admissionv1.Update},
					Rule: admissionv1.Rule{
						APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"},
					},
				},
			}}},
			Validations: []admissionv1.Validation{{Expression: unless + " || request.userInfo.username == 'nobody'"}},
		},
	}
	policies := w.kube.AdmissionregistrationV1().ValidatingAdmissionPolicies()
	bindings := w.kube.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings()
	must(policies.Create(w.ctx(), policy, metav1.CreateOptions{}))
	DeferCleanup(func(ctx SpecContext) { _ = policies.Delete(ctx, w.namespace, metav1.DeleteOptions{}) })
	must(bindings.Create(w.ctx(), &admissionv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: w.namespace},
		Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: w.namespace, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
			MatchResources: &admissionv1.MatchResources{NamespaceSelector: &metav1.LabelSelector{
				MatchLabels: map[string]string{"kubernetes.io/metadata.name": w.namespace},
			}},
		},
	}, metav1.CreateOptions{}))
	DeferCleanup(permit, w)
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
	server := httptest.NewTLSServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		review := &admission.AdmissionReview{}
		if json.NewDecoder(r.Body).Decode(review) != nil || review.Request == nil {
			return
		}
		select {
		case called <- struct{}{}:
		default:
		}
		if strings.HasPrefix(review.Request.Name, "broken-") {
			review.Response = respond()
		}
		if review.Response == nil {
			review.Response = &admission.AdmissionResponse{Allowed: true}
		}
		review.Response.UID, review.Request = review.Request.UID, nil
		rw.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(rw).Encode(review)
	}))
	DeferCleanup(server.Close)
	bundle := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	w.admit(strings.ToLower(kind)+"s", fmt.Sprintf(webhooks, kind, w.namespace, server.URL,
		base64.StdEncoding.EncodeToString(bundle)))
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

// send forwards a request to the real API server.
type send = func(*http.Request) (*http.Response, error)

var errCut = errors.New("the connection was cut")

// failing fails every request for a resource.
func (c *calls) failing(resource string) {
	c.with(func(r *http.Request, next send) (*http.Response, error) {
		if strings.Contains(r.URL.Path, "/"+resource) {
			return nil, errCut
		}
		return next(r)
	})
}

// unreachable fails every request.
func (c *calls) unreachable() {
	c.with(func(*http.Request, send) (*http.Response, error) { return nil, errCut })
}

// responding answers every request of a method with a fabricated status.
func (c *calls) responding(method string, code int, body string) {
	c.with(func(r *http.Request, next send) (*http.Response, error) {
		if r.Method != method {
			return next(r)
		}
		return reply(r, code, body), nil
	})
}

// reply returns a fabricated response.
func reply(r *http.Request, code int, body string) *http.Response {
	return &http.Response{
		StatusCode: code, Status: http.StatusText(code), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(body)), Request: r,
	}
}

// The uid and the version of these wants match the live object, so no conflict would stop the patch.
var _ = Describe("A result with a forged want", func() {
	var w *world

	BeforeEach(func(ctx SpecContext) { w = newWorld(ctx) })

	DescribeTable("changes nothing", func(body string, forge func(want *v1.Want)) {
		w.start()
		cm := asking("cm", "mydata="+url)
		cm.Annotations["x-kv8s.io/curl-sha256"] = "mydata=" + sum("required")
		cm.Data = map[string]string{"theirs": "value"}
		cm = w.create(cm)
		want := w.want(cm, "mydata", url)
		want.Sha256 = sum("required")
		w.signer.Sign(want)
		forge(want)
		w.apply(w.content(want, body))
		Expect(w.get("cm").Data).To(Equal(map[string]string{"theirs": "value"}))
		Expect(w.calls.all()).NotTo(ContainElement("PATCH configmaps"))

		By("writing the genuine one later")
		want = w.want(cm, "mydata", url)
		want.Sha256 = sum("required")
		w.signer.Sign(want)
		w.apply(w.content(want, "required"))
		Expect(w.get("cm").Data).To(HaveKeyWithValue("mydata", "required"))
	},
		Entry("for a key that is not annotated", "stolen", func(want *v1.Want) { want.Key, want.Sha256 = "password", "" }),
		Entry("for a URL that is not annotated", "required", func(want *v1.Want) { want.Url = "https://evil.example.com/" }),
		Entry("without the required digest", "other", func(want *v1.Want) { want.Sha256 = "" }),
		Entry("without the digest, and without a signature", "other",
			func(want *v1.Want) { want.Sha256, want.Signature = "", nil }),
		Entry("over a key of another owner", "stolen",
			func(want *v1.Want) { want.Key, want.Sha256, want.Drift = "theirs", "", "none" }),
	)

	It("costs a read of the object, logged once per cause", func() {
		w.start()
		for _, name := range []string{"one", "two", "three"} {
			cm := w.create(asking(name, "mydata="+url))
			want := w.want(cm, "mydata", url)
			if want.Signature = nil; name == "three" {
				want.Signature = []byte("by nobody who is trusted")
			}
			w.calls.reset()
			w.apply(w.content(want, "hello there"))
			Expect(w.get(name).Data).To(HaveKeyWithValue("mydata", "hello there"))
			Expect(w.calls.all()).To(Equal([]string{"GET configmaps", "PATCH configmaps"}))
		}
		for _, cause := range []error{signature.ErrUnsigned, signature.ErrUntrusted} {
			Expect(strings.Count(string(w.log.Contents()), cause.Error())).To(Equal(1), cause.Error())
		}
	})

	It("is accepted after a read of the object if no key is trusted", func() {
		w.config.TrustedKeys = ""
		w.start()
		cm := w.create(asking("cm", "mydata="+url))
		w.apply(w.content(w.want(cm, "mydata", url), "hello there"))
		Expect(w.get("cm").Data).To(HaveKeyWithValue("mydata", "hello there"))
		Expect(w.calls.all()).To(Equal([]string{"GET configmaps", "PATCH configmaps"}))
		Expect(strings.Count(string(w.log.Contents()), signature.ErrNoKeys.Error())).To(Equal(1))
	})
})

// hole is a network that can drop all packets. Existing connections stay dead afterwards, as behind
// a gateway that has lost their state.
type hole struct {
	open atomic.Bool
	// changes counts the calls of set.
	changes atomic.Int64
}

func (h *hole) dial(ctx context.Context, network, address string) (net.Conn, error) {
	if h.open.Load() {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	changes := h.changes.Load()
	conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
	return &swallowed{Conn: conn, dead: func() bool { return h.changes.Load() != changes }}, err
}

// set opens or closes the hole. Connections from before stay dead.
func (h *hole) set(open bool) {
	h.open.Store(open)
	h.changes.Add(1)
}

// swallowed is a connection whose peer may be silent.
type swallowed struct {
	net.Conn
	dead func() bool
}

func (s *swallowed) Read(b []byte) (int, error) {
	n, err := s.Conn.Read(b)
	for err == nil && s.dead() {
		n, err = s.Conn.Read(b)
	}
	return n, err
}

func (s *swallowed) Write(b []byte) (int, error) {
	if s.dead() {
		return len(b), nil
	}
	return s.Conn.Write(b)
}

var _ = It("A network outage ends for the writer within seconds, over new connections", func(ctx SpecContext) {
	w := newWorld(ctx)
	network := new(hole)
	w.cluster.Dial = network.dial
	w.start()
	names := []string{"a", "b", "c", "d"}
	for _, name := range names {
		w.create(asking(name, "mydata="+url))
	}
	w.apply(w.content(w.want(w.get("a"), "mydata", url), "before"))
	network.set(true)
	for _, name := range names {
		w.publish(w.content(w.want(w.get(name), "mydata", url), "after"))
	}
	Eventually(w.health.Ready).Should(BeFalse())
	network.set(false)
	w.catchesUp(names, "after")
	By("shutting down without delay")
	network.set(true)
	w.stop()
})
