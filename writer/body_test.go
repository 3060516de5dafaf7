package writer_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
)

var _ = Describe("A fetched body", func() {
	BeforeEach(func() { w.start() })

	It("costs one request, and a read only if the object is not known or has changed", func() {
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
})
