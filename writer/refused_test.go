package writer_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"google.golang.org/protobuf/proto"
	admission "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kv8s/curl-me-that/deploy/testkit/natstest"
	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

var _ = Describe("A body that the API server refuses", func() {
	BeforeEach(func() { w.start() })

	// alter makes a webhook change the value of mydata in objects named broken-…, unless off.
	alter := func() (off *atomic.Bool) {
		GinkgoHelper()
		kind, off := admission.PatchTypeJSONPatch, new(atomic.Bool)
		w.webhook("MutatingWebhookConfiguration", func() *admission.AdmissionResponse {
			if off.Load() {
				return nil
			}
			return &admission.AdmissionResponse{
				Allowed: true, PatchType: &kind, Patch: []byte(`[{"op":"add","path":"/data/mydata","value":"altered"}]`),
			}
		})
		return off
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
		Expect(w.calls.count("PATCH configmaps")).To(Equal(3), "refused, reported in the status, refused")
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
		letter := new(v1.DeadLetter)
		Expect(proto.Unmarshal(natstest.Messages(GinkgoTB(), w.js, pipeline.DeadLetters)[0].Data, letter)).To(Succeed())
		Expect(letter.GetFailure().GetClass()).To(Equal(v1.FailureClass_FAILURE_CLASS_CONTENT_REJECTED))
		Expect(string(letter.GetSnippet())).To(Equal(page))
		Expect(letter.GetPayload()).To(BeEmpty())
	})

	It("is not shown in its dead letter if a credential was needed to see it", func() {
		cm := w.create(asking("cm", "mydata="+url))
		w.apply(w.content(w.want(cm, "mydata", url), `{"good":true}`))
		page := w.content(due(w.want(cm, "mydata", url)), "<!doctype html>\n<title>Secrets</title>")
		page.GetContent().Credential = true
		w.apply(page)
		letters := natstest.Messages(GinkgoTB(), w.js, pipeline.DeadLetters)
		Expect(letters).To(HaveLen(1))
		Expect(string(letters[0].Data)).NotTo(ContainSubstring("Secrets"))
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
		Expect(w.calls.count("PATCH configmaps")).To(Equal(2), "one for the first key, and one for all others")
		Expect(w.events(cm)).To(HaveLen(keys))
	})

	It("is failing while admission writes another value and keeps the status, which says what the key holds", func() {
		off := alter()
		cm := w.create(asking("broken-cm", "mydata="+url+" other="+url))
		w.together(w.content(w.want(cm, "mydata", url), "body"), w.content(w.want(cm, "other", url), "other body"))
		altered := And(HaveField("Error", "WriteFailed"), HaveField("SHA256", sum("altered")))
		Expect(entry(w.get("broken-cm"), "mydata")).To(altered)
		Expect(entry(w.get("broken-cm"), "other")).To(And(HaveField("Error", ""), HaveField("SHA256", sum("other body"))))
		w.apply(w.content(due(w.want(cm, "mydata", url)), "body")) // as by the audit
		Expect(entry(w.get("broken-cm"), "mydata")).To(altered)
		Expect(w.events(cm)).To(ConsistOf("Warning WriteFailed: an admission policy or webhook changes the value of " +
			"key mydata in each write; exempt the ConfigMap from it [why-empty 10]"))
		off.Store(true)
		w.apply(w.content(due(w.want(cm, "mydata", url)), "body"))
		Expect(w.get("broken-cm").Data).To(Equal(map[string]string{"mydata": "body", "other": "other body"}))
		Expect(entry(w.get("broken-cm"), "mydata")).To(And(HaveField("Error", ""), HaveField("SHA256", sum("body"))))
		Expect(w.events(cm)).To(ContainElement(HavePrefix("Normal Recovered")))
	})

	It("is compared with what admission stored up to 256 KiB, since more would not fit into the memory of a small pod",
		func() {
			cm := w.create(asking("cm", "mydata="+url))
			var whole []bool
			w.calls.with(func(r *http.Request, next send) (*http.Response, error) {
				if r.Method == http.MethodPatch && strings.Contains(r.URL.Path, "/configmaps/") {
					whole = append(whole, !strings.Contains(r.Header.Get("Accept"), "PartialObjectMetadata"))
				}
				return next(r)
			})
			w.apply(w.content(w.want(cm, "mydata", url), "small"))
			w.apply(w.content(due(w.want(cm, "mydata", url)), strings.Repeat("x", 300<<10)))
			Expect(whole).To(Equal([]bool{true, false}))
		})

	It("leaves no status on an object that was created again after admission changed the value", func() {
		alter()
		cm, patches, again := w.create(asking("broken-cm", "mydata="+url)), 0, asking("broken-cm", "mydata="+url)
		again.Data = map[string]string{"mydata": "of a person"}
		w.calls.with(func(r *http.Request, next send) (*http.Response, error) {
			if r.Method == http.MethodPatch {
				if patches++; patches == 2 {
					Expect(w.maps().Delete(w.ctx(), cm.Name, metav1.DeleteOptions{})).To(Succeed())
					w.create(again)
				}
			}
			return next(r)
		})
		w.apply(w.content(w.want(cm, "mydata", url), "body"))
		Expect(patches).To(Equal(2))
		Expect(w.get("broken-cm")).To(And(HaveField("Data", again.Data), HaveField("Annotations", again.Annotations)))
	})

	It("is missing in the history after admission changed it, but not the others of its patch", func(ctx SpecContext) {
		suitetest.Must(pipeline.Ensure(ctx, w.js, pipeline.Topology{HistoryBytes: 16 << 20}))
		versions := func(key string) []*v1.Version {
			return suitetest.Must(w.client.Versions(ctx, pipeline.Key{Namespace: w.namespace, Name: "broken-cm", Key: key}))
		}
		alter()
		cm := w.create(asking("broken-cm", "first="+url+" mydata="+url+" other="+url))
		w.together(w.content(readFirst(w.want(cm, "first", url)), "body"),
			w.content(readFirst(w.want(cm, "mydata", url)), "body"), w.content(readFirst(w.want(cm, "other", url)), "body"))
		Eventually(versions).WithArguments("other").Should(HaveLen(1))
		Expect(versions("mydata")).To(BeEmpty())
	})

	It("has one Event if a policy forbids it, and is written when it is published again", func() {
		w.forbid("!has(object.data) || !('mydata' in object.data)")
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
		w.permit()
		w.await(func() { w.apply(w.content(due(w.want(cm, "mydata", url)), "body")) },
			func() bool { return len(w.get("cm").Data) == 2 })
		Expect(w.get("cm").Data).To(Equal(map[string]string{"mydata": "body", "other": "other body"}))
		Expect(w.events(cm)).To(ConsistOf(HavePrefix("Warning WriteFailed"), HavePrefix("Normal Recovered")))
	})

	It("has one Event if a policy forbids any change", func() {
		cm := w.create(asking("cm", "mydata="+url))
		w.forbid("false")
		w.publish(w.failure(w.want(cm, "mydata", url), 500))
		Eventually(func() []string { return w.events(cm) }).Should(ConsistOf(HavePrefix("Warning WriteFailed: ")))
		w.acknowledged()
		w.permit()
		w.await(func() { w.apply(w.failure(due(w.want(cm, "mydata", url)), 500)) },
			func() bool { return entry(w.get("cm"), "mydata").Failing() })
		Expect(entry(w.get("cm"), "mydata").Error).To(Equal("BadStatus"))
		Expect(w.events(cm)).To(ConsistOf(HavePrefix("Warning WriteFailed: "), HavePrefix("Warning BadStatus: ")))
	})
})
