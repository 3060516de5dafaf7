package engine_test

import (
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/pipeline/natstest"
)

var _ = Describe("A host without a free slot", func() {
	var w *world
	BeforeEach(func() { w = newWorld(natstest.Options{}, pipeline.Topology{}) })

	It("parks further attempts without counting them", func() {
		hanging := w.hangs()
		f := w.fetcher(func(o *fetcherOptions) { o.limits.PerHost = 3 })
		for i := range 2 {
			w.publish(w.want(fmt.Sprintf("%s/%d", hanging.URL, i), named("first", i)))
		}
		f.run()
		Eventually(hanging.gets.Load).Should(BeEquivalentTo(2))
		sequence := w.publish(w.want(hanging.URL + "/next"))

		Eventually(w.timer).ShouldNot(BeNil())
		t := w.timer()
		Expect(t.GetCause()).To(Equal(v1.Cause_CAUSE_PARKED))
		Expect(t.GetWantSequence()).To(Equal(sequence))
		Expect(t.GetAttempts()).To(BeZero())
		Expect(t.GetReported()).To(Equal(v1.FailureClass_FAILURE_CLASS_UNSPECIFIED))
		Expect(t.GetWaitingSince().AsTime()).To(BeTemporally("==", w.clock.Now()))
		Expect(t.at.Sub(w.clock.Now())).To(BeNumerically("~", 40*time.Second, 20*time.Second))
		Expect(w.results()).To(BeEmpty())
		Eventually(w.pending).Should(BeEquivalentTo(2), "the message is acknowledged")
		Eventually(func() int { return f.parked("host_busy") }).Should(Equal(1))
	})

	It("keeps the fast path of the writer for a parked want", func() {
		want := w.want(serve(says("hello there")).URL)
		sequence := w.publish(want)
		Expect(w.next().Ack()).To(Succeed())
		w.fire(&v1.Due{Want: want, WantSequence: sequence, Cause: v1.Cause_CAUSE_PARKED})
		w.fetcher().step()
		Expect(w.result().GetWant().GetStatus()).To(Equal(want.GetStatus()))
		Expect(w.result().GetWant().GetReadFirst()).To(BeFalse())
		Expect(w.result().GetCause()).To(Equal(v1.Cause_CAUSE_NEW))
	})
})
