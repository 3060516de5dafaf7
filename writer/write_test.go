package writer_test

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"github.com/kv8s/curl-me-that/proto/annotation"
)

const url = "https://data.example.com/greeting?token=secret"

// linger is long enough to batch results on a busy machine.
const linger = 2 * time.Second

var _ = Describe("A fetched body", func() {
	var w *world

	BeforeEach(func(ctx SpecContext) {
		w = newWorld(ctx)
		w.start()
	})

	It("is written with a single request", func() {
		cm := w.create(asking("cm", "mydata="+url))
		w.apply(w.content(w.want(cm, "mydata", url), "hello there"))

		got := w.get("cm")
		Expect(got.Data).To(Equal(map[string]string{"mydata": "hello there"}))
		Expect(w.calls.all()).To(Equal([]string{"PATCH configmaps"}))
		Expect(entry(got, "mydata")).To(And(
			HaveField("URL", url), HaveField("SHA256", sum("hello there")), HaveField("Size", int64(11)),
			HaveField("Error", ""), HaveField("Fence.Seq", uint64(101)),
		))
		Expect(w.events(cm)).To(BeEmpty())
	})

	It("needs no read after another write to the same object", func() {
		cm := w.create(asking("cm", "a="+url+" b="+url))
		w.apply(w.content(w.want(cm, "a", url), "A"))
		w.apply(w.content(w.want(cm, "b", url), "B"))
		Expect(w.get("cm").Data).To(Equal(map[string]string{"a": "A", "b": "B"}))
		Expect(w.calls.all()).To(Equal([]string{"PATCH configmaps", "PATCH configmaps"}))
	})

	It("needs a read after a conflict if the object has changed", func() {
		cm := w.create(asking("cm", "mydata="+url))
		w.edit("cm", func(cm *corev1.ConfigMap) { cm.Data = map[string]string{"theirs": "value"} })
		w.apply(w.content(w.want(cm, "mydata", url), "hello there"))
		Expect(w.get("cm").Data).To(Equal(map[string]string{"mydata": "hello there", "theirs": "value"}))
		Expect(w.calls.all()).To(Equal([]string{"PATCH configmaps", "GET configmaps", "PATCH configmaps"}))
	})

	It("needs a read of the metadata before the patch after a refresh", func() {
		cm := w.create(asking("cm", "mydata="+url))
		w.apply(w.content(due(w.want(cm, "mydata", url)), "hello there"))
		Expect(w.get("cm").Data).To(Equal(map[string]string{"mydata": "hello there"}))
		Expect(w.calls.all()).To(Equal([]string{"GET configmaps", "PATCH configmaps"}))
	})

	It("stays when its pair is removed with --prune=false", func() {
		w.stop()
		w.config.Prune = false
		w.start()
		cm := w.create(asking("cm", "a="+url+" b="+url))
		w.apply(w.content(w.want(cm, "a", url), "A"), w.content(w.want(cm, "b", url), "B"))
		w.apply(w.reconcile(w.edit("cm", func(cm *corev1.ConfigMap) { cm.Annotations[annotation.DefaultKey] = "a=" + url })))
		got := w.get("cm")
		Expect(got.Data).To(Equal(map[string]string{"a": "A", "b": "B"}))
		Expect(entry(got, "b")).To(BeZero())
	})
})
