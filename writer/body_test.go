package writer_test

import (
	"fmt"
	"strings"

	"github.com/nats-io/nats.go"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

var _ = It("A fetched body costs one request, and a read only if the object is not known or has changed", func() {
	w.start()
	cm := w.create(asking("cm", "a="+url+" b="+url))
	w.apply(w.content(w.want(cm, "a", url), "hello there"))
	got := w.get("cm")
	Expect(got.Data).To(Equal(map[string]string{"a": "hello there"}))
	Expect(entry(got, "a")).To(And(
		HaveField("URL", url), HaveField("SHA256", sum("hello there")), HaveField("Size", int64(11)),
		HaveField("Error", ""), HaveField("Fence.Seq", uint64(101)),
	))
	Expect(w.events(cm)).To(BeEmpty())
	w.apply(w.content(w.want(cm, "b", url), "B"))
	Expect(w.calls.all()).To(Equal([]string{"PATCH configmaps", "PATCH configmaps"}))

	By("after a change by somebody else")
	w.calls.reset()
	w.edit("cm", func(cm *corev1.ConfigMap) { cm.Data["theirs"] = "value" })
	w.apply(w.content(w.want(cm, "b", url), "C"))
	Expect(w.get("cm").Data).To(Equal(map[string]string{"a": "hello there", "b": "C", "theirs": "value"}))
	Expect(w.calls.all()).To(Equal([]string{"PATCH configmaps", "GET configmaps", "PATCH configmaps"}))

	By("for a timer, whose message does not show the object")
	w.calls.reset()
	other := w.create(asking("other", "mydata="+url))
	w.apply(w.content(due(w.want(other, "mydata", url)), "hello there"))
	Expect(w.get("other").Data).To(Equal(map[string]string{"mydata": "hello there"}))
	Expect(w.calls.all()).To(Equal([]string{"GET configmaps", "PATCH configmaps"}))
})

var _ = Describe("A ConfigMap that asks for more than it can hold", func() {
	const keys, size = 16, 1_000_000
	// Bodies are in memory several times, and the writer has 320 MiB for 32 objects.
	var cm *corev1.ConfigMap
	pairs, bodies := make([]string, keys), make([]string, keys)
	for n := range keys {
		pairs[n], bodies[n] = fmt.Sprintf("k%d=%s", n, url), fmt.Sprint(n, strings.Repeat("x", size-2))
	}

	BeforeEach(func(ctx SpecContext) {
		suitetest.Must(pipeline.Ensure(ctx, w.js, pipeline.Topology{HistoryBytes: 64 << 20}))
		w.start()
		cm = w.create(asking("cm", strings.Join(pairs, " ")))
	})
	AfterEach(func() {
		Expect(w.get("cm").Data).To(HaveLen(1))
		Expect(w.calls.largest.Load()).To(BeNumerically("<", 2<<20), "the size of a request")
	})

	It("causes no larger request than others when all bodies come at once", func() {
		var results []*v1.Result
		for n := range keys {
			results = append(results, w.content(readFirst(w.want(cm, fmt.Sprint("k", n), url)), bodies[n]))
		}
		w.together(results[0], results[1:]...)
	})

	It("causes no larger request than others when all bodies are in the history", func() {
		pins := make([]string, keys)
		for n, body := range bodies {
			pins[n] = fmt.Sprintf("k%d=%s", n, sum(body))
			suitetest.Must(w.js.PublishMsg(w.ctx(), &nats.Msg{
				Subject: pipeline.BodySubject(w.namespace, sum(body)), Data: []byte(body),
			}))
		}
		w.apply(w.reconcile(w.edit("cm", func(cm *corev1.ConfigMap) {
			cm.Annotations["x-kv8s.io/curl-sha256"] = strings.Join(pins, " ")
		})))
	})
})
