package writer_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"
	admission "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

var _ = It("The shutdown of the writer does not wait for an unavailable API server", func() {
	w.start()
	cm := w.create(asking("cm", "mydata="+url))
	w.calls.unreachable()
	w.publish(w.content(w.want(cm, "mydata", url), "a"), w.content(w.want(cm, "mydata", url), "b"))
	Eventually(w.Health.Ready).Should(BeFalse())
	begun := time.Now()
	w.Stop()
	Expect(time.Since(begun)).To(BeNumerically("<", 10*time.Second))
	Expect(w.waiting()).To(BeEquivalentTo(2))
})

var _ = It("A ConfigMap that others edit all the time is filled at once, and keeps their edits", func() {
	const before = 5 // the first patches, each of which conflicts with an edit
	w.start()
	cm := w.create(asking("cm", "mydata="+url))
	var edits, refused, paused atomic.Int64
	w.calls.with(func(r *http.Request, next send) (*http.Response, error) {
		if at := refused.Swap(0); at != 0 {
			paused.Add(time.Now().UnixNano() - at)
		}
		if r.Method != http.MethodPatch || edits.Load() == before {
			return next(r)
		}
		n := fmt.Sprint(edits.Add(1))
		w.edit("cm", func(cm *corev1.ConfigMap) { cm.Data = map[string]string{"counter": n} })
		response, err := next(r)
		refused.Store(time.Now().UnixNano())
		return response, err
	})
	w.apply(w.content(w.want(cm, "mydata", url), "body"))
	Expect(w.get("cm").Data).To(Equal(map[string]string{"counter": fmt.Sprint(before), "mydata": "body"}))
	Expect(w.Value(own + "conflicts_exhausted_total")()).To(BeZero())
	Expect(time.Duration(paused.Load())).To(BeNumerically(">", 10*time.Millisecond), "five random pauses of up to 40 ms")
})

var _ = Describe("An API server", func() {
	const failed = `"level":"error"`

	It("that forbids patches causes one log line and one Event per key, and holds up no message", func() {
		w.start()
		w.calls.forbidding(http.MethodPatch, "patch", "configmaps")
		cm := w.create(asking("cm", "mydata="+url))
		other := w.create(asking("other", "mydata="+url))
		w.publish(w.content(w.want(cm, "mydata", url), "body"), w.content(w.want(other, "mydata", url), "body"))
		Eventually(w.Health.Ready).Should(BeFalse())
		Eventually(func() []string { return w.events(cm) }).Should(ConsistOf(
			"Warning WriteFailed: curl-me-that may not write ConfigMaps in this namespace; key mydata waits for the " +
				"permission [why-empty 10]"))
		w.acknowledged()
		w.apply(w.content(due(w.want(cm, "mydata", url)), "body"))
		Expect(w.events(cm)).To(HaveLen(1))
		Expect(w.Logged(failed)).To(Equal(1))
		Expect(w.Log).To(gbytes.Say(failed + ".*grant get and patch of configmaps"))
		w.calls.with(nil)
		for _, object := range []*corev1.ConfigMap{cm, other} {
			w.apply(w.content(due(w.want(object, "mydata", url)), "body"))
			Expect(w.get(object.Name).Data).To(HaveKeyWithValue("mydata", "body"))
		}
		Expect(w.Health.Ready()).To(BeTrue())
		Expect(w.events(cm)).To(ConsistOf(HavePrefix("Warning WriteFailed: "),
			"Normal Recovered: data.example.com responded; key mydata is up to date"))
	})

	It("that refuses Events still gets values", func() {
		w.start()
		w.calls.forbidding(http.MethodPost, "create", "events")
		cm := w.create(asking("cm", "mydata="+url))
		w.apply(w.failure(w.want(cm, "mydata", url), 500))
		w.apply(w.content(due(w.want(cm, "mydata", url)), "body"))
		Expect(w.get("cm").Data).To(HaveKeyWithValue("mydata", "body"))
		Expect(w.Logged(failed)).To(Equal(1))
	})

	It("that is deleting a namespace causes no error in the log", func() {
		w.start()
		cm := asking("cm", "mydata="+url)
		cm.Finalizers = []string{"example.com/keep"}
		cm = w.create(cm)
		Expect(person.CoreV1().Namespaces().Delete(w.ctx(), w.namespace, metav1.DeleteOptions{})).To(Succeed())
		w.apply(w.content(w.want(cm, "mydata", url), "late"), w.failure(w.want(cm, "mydata", url), 500))
		Expect(w.Logged(failed)).To(BeZero())
	})
})

var _ = Describe("Objects whose requests fail while the API server is ready", func() {
	big := strings.Repeat("x", 900_000)

	DescribeTable("leave the writer ready, have one Event each, and delay no other namespace:",
		func(disturb func(), body, note string, patches int) {
			disturb()
			w.start()
			ready := watchReadiness()
			var broken []*corev1.ConfigMap
			objects := 4
			if body == big {
				objects = 2 // a busy machine is slow with them
			}
			for i := range objects {
				cm := asking(fmt.Sprint("broken-", i), "mydata="+url)
				if body == big {
					cm.OwnerReferences = owners(1_200_000)
				}
				broken = append(broken, w.create(cm))
				w.publish(w.content(w.want(broken[i], "mydata", url), body))
			}
			result, data := w.elsewhere()
			w.publish(result)
			Eventually(data).WithTimeout(8 * time.Second).Should(HaveKeyWithValue("mydata", "body"))

			w.acknowledged()
			for _, cm := range broken {
				Eventually(func() []string { return w.events(cm) }).Should(ConsistOf(ContainSubstring(note)))
			}
			Expect(w.calls.count("PATCH configmaps")).To(BeNumerically("<=", objects*patches+1))
			for _, cm := range broken { // as by the audit
				w.apply(w.content(due(w.want(cm, "mydata", url)), body))
				Expect(w.events(cm)).To(HaveLen(1))
			}
			Expect(w.calls.count("PATCH configmaps")).To(BeNumerically("<=", 2*objects*patches+1))
			Expect(ready()).To(BeTrue(), "in each poll")
		},
		Entry("a mutating webhook returns a patch that does not apply", func() {
			w.webhook("MutatingWebhookConfiguration", func() *admission.AdmissionResponse {
				kind := admission.PatchTypeJSONPatch
				return &admission.AdmissionResponse{
					Allowed: true, PatchType: &kind, Patch: []byte(`[{"op":"remove","path":"/spec/missing"}]`),
				}
			})
		}, "body", "WriteFailed: the API server could not write the ConfigMap, perhaps because an admission webhook is slow "+
			"or broken; ask the operator, the log of the writer has the error; key mydata has no value yet; retrying", 3),
		Entry("a validating webhook does not respond", func() {
			w.cluster.Timeout = time.Second // instead of 10 s
			over := make(chan struct{})
			w.webhook("ValidatingWebhookConfiguration", func() *admission.AdmissionResponse {
				<-over
				return nil
			})
			DeferCleanup(func() { close(over) })
		}, "body", "WriteFailed: the API server could not write the ConfigMap, perhaps because an admission webhook is "+
			"slow", 3),
		Entry("a webhook asks to come back", func() {
			w.webhook("ValidatingWebhookConfiguration", func() *admission.AdmissionResponse {
				return &admission.AdmissionResponse{Result: &metav1.Status{
					Code: http.StatusServiceUnavailable, Details: &metav1.StatusDetails{RetryAfterSeconds: 30},
				}}
			})
		}, "body", "WriteFailed: the API server refused to write the body from data.example.com", 2),
		Entry("a policy removes the status", func() { w.strip() }, "body",
			"WriteFailed: an admission policy removes curl-status", 1),
		Entry("their metadata leave no room in a request to etcd", func() {}, big,
			"BodyTooLarge: the ConfigMap with its metadata and the body for key mydata (900,000 bytes) is too large", 2),
	)
})

// watchReadiness polls the readiness of the writer. The result reports whether it was ready in each poll.
func watchReadiness() (always func() bool) {
	stop, ready := make(chan struct{}), make(chan bool)
	go func() {
		for always := true; ; always = always && w.Health.Ready() {
			select {
			case <-stop:
				ready <- always
				return
			case <-time.After(10 * time.Millisecond):
			}
		}
	}()
	always = sync.OnceValue(func() bool { close(stop); return <-ready })
	DeferCleanup(func() { always() })
	return always
}

// owners returns owner references that take about that many bytes. No garbage collector removes the object.
func owners(size int) []metav1.OwnerReference {
	const each = 250
	all := make([]metav1.OwnerReference, size/each)
	for i := range all {
		all[i] = metav1.OwnerReference{
			APIVersion: "v1", Kind: "Pod", Name: strings.Repeat("n", 200), UID: types.UID(fmt.Sprintf("%036d", i)),
		}
	}
	return all
}
