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
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kv8s/curl-me-that/deploy/testkit/kubetest"
	"github.com/kv8s/curl-me-that/proto/annotation"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/signature"
)

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

var _ = Describe("A network outage", func() {
	It("ends for the writer within seconds, over new connections", func(ctx SpecContext) {
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
})
