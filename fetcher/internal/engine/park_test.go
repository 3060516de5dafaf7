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

	It("parks the attempt when the host has no free slot, and does not count it", func() {
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
		Expect(t.at.Sub(w.clock.Now())).To(BeNumerically(">=", 300*time.Millisecond))
		Expect(w.results()).To(BeEmpty())
		Eventually(w.pending).Should(BeEquivalentTo(2), "the message is acknowledged")
		Eventually(func() int { return f.parked("host_busy") }).Should(Equal(1))
	})

	It("leaves to the writer what its fast path needs, though the want comes back as due", func() {
		want := w.want(serve(says("hello there")).URL)
		sequence := w.publish(want)
		Expect(w.next().Ack()).To(Succeed())
		w.fire(&v1.Due{Want: want, WantSequence: sequence, Cause: v1.Cause_CAUSE_PARKED})
		w.fetcher().step()
		Expect(w.result().GetWant().GetStatus()).To(Equal(want.GetStatus()))
		Expect(w.result().GetWant().GetReadFirst()).To(BeFalse())
		Expect(w.result().GetCause()).To(Equal(v1.Cause_CAUSE_NEW))
	})

	It("lets those come sooner that were put off before it was known to be quick, and no other", func() {
		const wants = 30
		slow := w.hangs()
		f := w.fetcher()
		f.run()
		for i := range wants {
			w.publish(w.want(fmt.Sprintf("%s/%d", slow.URL, i), named("put-off", i)))
		}
		Eventually(func() int { return f.parked("host_busy") }).Should(Equal(wants - 7))
		latest := func() (key pipeline.Key, at time.Time) {
			for i := range wants {
				want := w.want("", named("put-off", i))
				if t := w.timerOf(pipeline.KeyOf(want)); t != nil && t.GetCause() == v1.Cause_CAUSE_PARKED && t.at.After(at) {
					key, at = pipeline.KeyOf(want), t.at
				}
			}
			return key, at
		}
		moved, at := latest()
		Expect(at.Sub(w.clock.Now())).To(BeNumerically(">", 5*time.Second))
		w.publish(w.want(serve(says("of another host")).URL, every(10*time.Minute), func(w *v1.Want) { w.Name = moved.Name }))
		Eventually(func(g Gomega) {
			t := w.timerOf(moved)
			g.Expect(t).NotTo(BeNil())
			g.Expect(t.GetCause()).To(Equal(v1.Cause_CAUSE_REFRESH))
		}).Should(Succeed())
		By("leaving a timer alone that has been set since for the same want, as after a replay")
		replayed, _ := latest()
		later := &v1.Due{
			Want: w.want(slow.URL, func(w *v1.Want) { w.Name = replayed.Name }), WantSequence: w.timerOf(replayed).GetWantSequence(),
			Cause: v1.Cause_CAUSE_RETRY, Attempts: 3,
		}
		Expect(w.client.PublishTimer(w.ctx, later, w.clock.Now().Add(time.Minute))).To(Succeed())

		w.clock.Advance(100 * time.Millisecond)
		w.end()
		Eventually(func() time.Duration { _, at := latest(); return at.Sub(w.clock.Now()) }).Should(BeNumerically("<", 2*time.Second))
		Eventually(func() float64 { return f.metric("curlmethat_fetcher_advanced_total", "") }).Should(BeNumerically(">", wants/2))
		Expect(w.timerOf(moved).GetCause()).To(Equal(v1.Cause_CAUSE_REFRESH))
		Expect(w.timerOf(replayed).GetAttempts()).To(BeEquivalentTo(3))
		key, _ := latest()
		t := w.timerOf(key)
		Expect(t.GetWantSequence()).To(BeNumerically(">", 0))
		Expect(t.GetAttempts()).To(BeZero())
	})

	It("lets others go on while some are parked", func() {
		const each = 500
		hanging, instant := w.hangs(), serve(says("hello there"))
		f := w.fetcher(func(o *fetcherOptions) {
			o.now = time.Now
			o.get.HeaderTimeout, o.get.Timeout = time.Minute, time.Minute
		})
		f.run()
		for i := range each {
			w.publish(w.want(fmt.Sprintf("%s/%d", hanging.URL, i), named("hanging", i)))
			w.publish(w.want(fmt.Sprintf("%s/%d", instant.URL, i), named("instant", i)))
		}
		Eventually(w.contents).Should(Equal(each))
		Expect(hanging.gets.Load()).To(BeNumerically("<=", 7), "one slot is kept for another namespace")
		Eventually(func() int { return f.parked("host_busy") }).Should(BeNumerically(">=", each-8))
	})
})

var _ = Describe("A namespace", func() {
	It("holds its share of the slots at most while others want some", func() {
		w := newWorld(natstest.Options{}, pipeline.Topology{})
		var origins []*origin
		for range 8 {
			origins = append(origins, w.hangs())
		}
		f := w.fetcher(func(o *fetcherOptions) { o.limits.Slots = 8 })
		for i := range 100 {
			w.publish(w.want(fmt.Sprintf("%s/%d", origins[i%8].URL, i), named("greedy", i)))
		}
		w.publish(w.want(serve(says("hello there")).URL, func(w *v1.Want) { w.Namespace = "modest" }))
		f.run()
		Eventually(w.results).Should(HaveLen(1))
		Expect(w.result().GetWant().GetNamespace()).To(Equal("modest"))
		Eventually(func() int { return f.parked("namespace_share") }).Should(BeNumerically(">=", 92))
	})
})
