package writer_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
)

var _ = Describe("A failed fetch", func() {
	BeforeEach(func() { w.start() })

	It("has one Event even if the writer dies before or after it", func() {
		cm := w.create(asking("cm", "mydata="+url))
		w.apply(w.content(w.want(cm, "mydata", url), "good"))
		failed := w.failure(due(w.want(cm, "mydata", url)), 500)
		well := w.content(due(w.want(cm, "mydata", url)), "better")
		publishAndDie := func(r *v1.Result) {
			w.calls.failing("events") // the process ends before its Event is written
			w.publish(r)
			Eventually(w.calls.all).Should(ContainElement("POST events"))
			w.Stop()
			w.calls.with(nil)
			w.start()
			w.acknowledged()
		}
		publishAndDie(failed)
		Expect(w.events(cm)).To(ConsistOf(HavePrefix("Warning BadStatus")))
		publishAndDie(well)
		Expect(w.events(cm)).To(ConsistOf(HavePrefix("Warning BadStatus"), HavePrefix("Normal Recovered")))
		w.Stop()
		w.start() // a new process does not know which Events exist
		w.publish(failed)
		w.publish(well)
		w.acknowledged()
		Expect(w.events(cm)).To(HaveLen(2))
	})
})
