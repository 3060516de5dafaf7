package writer_test

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
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

	It("changes nothing else of the object", func() {
		cm := asking("cm", "mydata="+url)
		cm.Labels = map[string]string{"app": "x"}
		cm.Annotations["other"] = "annotation"
		cm.Data = map[string]string{"theirs": "value"}
		cm.BinaryData = map[string][]byte{"binary": {0xff}}
		cm = w.create(cm)
		w.apply(w.content(w.want(cm, "mydata", url), "hello there"))

		got := w.get("cm")
		Expect(got.Data).To(HaveKeyWithValue("mydata", "hello there"))
		delete(got.Data, "mydata")
		delete(got.Annotations, "x-kv8s.io/curl-status")
		Expect(got.Data).To(Equal(cm.Data))
		Expect(got.BinaryData).To(Equal(cm.BinaryData))
		Expect(got.Labels).To(Equal(cm.Labels))
		Expect(got.Annotations).To(Equal(cm.Annotations))
	})

	It("moves between data and binaryData as its kind changes", func() {
		cm := w.create(asking("cm", "mydata="+url))
		w.apply(w.content(w.want(cm, "mydata", url), "\xff\x00binary"))
		got := w.get("cm")
		Expect(got.Data).To(BeEmpty())
		Expect(got.BinaryData).To(Equal(map[string][]byte{"mydata": []byte("\xff\x00binary")}))
		Expect(entry(got, "mydata").Binary).To(BeTrue())

		w.apply(w.content(w.want(got, "mydata", url), "text with NUL \x00 and \u2028, <html>"))
		got = w.get("cm")
		Expect(got.BinaryData).To(BeEmpty())
		Expect(got.Data).To(Equal(map[string]string{"mydata": "text with NUL \x00 and \u2028, <html>"}))

		w.apply(w.content(w.want(got, "mydata", url), "\xfe"))
		got = w.get("cm")
		Expect(got.Data).To(BeEmpty())
		Expect(got.BinaryData).To(Equal(map[string][]byte{"mydata": {0xfe}}))
	})

	It("needs no read after an earlier write of the same version", func() {
		cm := w.create(asking("cm", "a="+url+" b="+url))
		w.apply(w.content(w.want(cm, "a", url), "A"))
		w.apply(w.content(w.want(cm, "b", url), "B"))
		Expect(w.get("cm").Data).To(Equal(map[string]string{"a": "A", "b": "B"}))
		Expect(w.calls.all()).To(Equal([]string{"PATCH configmaps", "PATCH configmaps"}))
	})

	It("needs a read first if the object has changed", func() {
		cm := w.create(asking("cm", "mydata="+url))
		w.edit("cm", func(cm *corev1.ConfigMap) { cm.Data = map[string]string{"theirs": "value"} })
		w.apply(w.content(w.want(cm, "mydata", url), "hello there"))
		Expect(w.get("cm").Data).To(Equal(map[string]string{"mydata": "hello there", "theirs": "value"}))
		Expect(w.calls.all()).To(Equal([]string{"PATCH configmaps", "GET configmaps", "PATCH configmaps"}))
	})

	It("needs a read of the metadata first after a refresh", func() {
		cm := w.create(asking("cm", "mydata="+url))
		w.apply(w.content(due(w.want(cm, "mydata", url)), "hello there"))
		Expect(w.get("cm").Data).To(Equal(map[string]string{"mydata": "hello there"}))
		Expect(w.calls.all()).To(Equal([]string{"GET configmaps", "PATCH configmaps"}))
	})

	It("is not written if the key already holds it", func() {
		cm := w.create(asking("cm", "mydata="+url))
		w.apply(w.content(w.want(cm, "mydata", url), "hello there"))
		got := w.get("cm")
		w.calls.reset()
		w.apply(w.content(w.want(got, "mydata", url), "hello there"))
		w.apply(w.content(due(w.want(got, "mydata", url)), "hello there"))
		Expect(w.get("cm").ResourceVersion).To(Equal(got.ResourceVersion))
		Expect(w.calls.all()).NotTo(ContainElement("PATCH configmaps"))
	})
})
