package engine_test

import (
	"fmt"
	"net/http"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/pipeline/natstest"
)

var _ = Describe("A key that waits for a slot of its host", func() {
	const perHost = 3 // of which one namespace gets two
	var w *world
	BeforeEach(func() { w = newWorld(natstest.Options{}, pipeline.Topology{}) })
	few := func(o *fetcherOptions) { o.limits.PerHost = perHost }
	// fill publishes wants of a host that take its slots, and more that wait.
	fill := func(host *origin, wants int, change ...func(*v1.Want)) []pipeline.Key {
		GinkgoHelper()
		var keys []pipeline.Key
		for i := range wants {
			want := w.want(fmt.Sprintf("%s/%d", host.URL, i), append(change, named("cm", i))...)
			w.publish(want)
			keys = append(keys, pipeline.KeyOf(want))
		}
		return keys
	}
	claims := func(f *fetcher, result string) int { return int(f.metric("curlmethat_fetcher_claims_total", result)) }

	It("is parked, which counts as no attempt", func() {
		hanging := w.hangs()
		f := w.fetcher(few)
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

	It("keeps the fast path of the writer", func() {
		want := w.want(serve(says("hello there")).URL)
		w.due(want, &v1.Due{Cause: v1.Cause_CAUSE_PARKED})
		w.fetcher().step()
		Expect(w.result().GetWant().GetStatus()).To(Equal(want.GetStatus()))
		Expect(w.result().GetWant().GetReadFirst()).To(BeFalse())
		Expect(w.result().GetCause()).To(Equal(v1.Cause_CAUSE_NEW))
	})

	It("is fetched when a slot comes free, and leaves no timer", func() {
		slow := w.hangs()
		f := w.fetcher(few)
		f.run()
		keys := fill(slow, 20)
		Eventually(func() int { return f.parked("host_busy") }).Should(Equal(len(keys) - perHost + 1))
		w.end()
		Eventually(w.contents).Should(Equal(len(keys)))
		for _, k := range keys {
			Eventually(func() *timer { return w.timerOf(k) }).Should(BeNil())
		}
		Expect(w.pending()).To(BeZero())
		Expect(slow.gets.Load()).To(BeEquivalentTo(len(keys)))
		Expect(claims(f, "won")).To(Equal(len(keys) - perHost + 1))
	})

	It("gets the timer of its refresh after its GET", func() {
		slow := w.hangs()
		f := w.fetcher(few)
		f.run()
		keys := fill(slow, 6, every(10*time.Minute))
		Eventually(func() int { return f.parked("host_busy") }).Should(Equal(len(keys) - perHost + 1))
		w.end()
		for _, k := range keys {
			Eventually(func(g Gomega) {
				t := w.timerOf(k)
				g.Expect(t).NotTo(BeNil())
				g.Expect(t.GetCause()).To(Equal(v1.Cause_CAUSE_REFRESH))
			}).Should(Succeed())
		}
	})

	It("comes back by its claim if the fetcher ends during the GET", func() {
		release := make(chan struct{})
		var host *origin
		host = serve(func(http.ResponseWriter, *http.Request) {
			if host.gets.Load() < perHost {
				<-release
				return
			}
			<-w.ending
		})
		f := w.fetcher(few)
		f.run()
		keys := fill(host, perHost)
		Eventually(func() int { return f.parked("host_busy") }).Should(Equal(1))
		close(release)
		Eventually(host.gets.Load).Should(BeEquivalentTo(perHost))
		var claim *timer
		for _, k := range keys {
			if t := w.timerOf(k); t != nil {
				claim = t
			}
		}
		Expect(claim).NotTo(BeNil())
		Expect(claim.at).To(BeTemporally("==", w.clock.Now().Add(pipeline.AckWait)))
		Expect(claim.GetCause()).To(Equal(v1.Cause_CAUSE_PARKED))
		Expect(claim.GetUnended()).To(BeEquivalentTo(1))
	})

	It("becomes a dead letter after too many claims without an end", func() {
		w.due(w.want(serve(says("hello there")).URL),
			&v1.Due{Cause: v1.Cause_CAUSE_PARKED, Unended: pipeline.DefaultMaxUnended})
		w.fetcher().step()
		Expect(w.deadLetters()).To(HaveLen(1))
		Expect(w.deadLetters()[0].GetFailure().GetClass()).To(Equal(v1.FailureClass_FAILURE_CLASS_POISON))
	})

	It("keeps its place when its lease ends, at the cost of one message", func() {
		slow := w.hangs()
		f := w.fetcher(few)
		for i := range perHost {
			w.publish(w.want(fmt.Sprintf("%s/%d", slow.URL, i), named("cm", i)))
		}
		stop := f.run()
		var k pipeline.Key
		Eventually(func() *timer {
			for i := range perHost {
				k = pipeline.Key{Namespace: key.Namespace, Name: fmt.Sprintf("cm-%04d", i), Key: key.Key}
				if t := w.timerOf(k); t != nil {
					return t
				}
			}
			return nil
		}).ShouldNot(BeNil())
		since := w.timerOf(k).GetWaitingSince().AsTime()
		w.clock.Advance(time.Minute)
		w.fire(w.timerOf(k).Due)
		Eventually(func() float64 { return f.metric("curlmethat_fetcher_requests_total", "waits") }).Should(BeEquivalentTo(1))
		Expect(w.timerOf(k).GetWaitingSince().AsTime()).To(BeTemporally("==", since))
		Expect(w.timerOf(k).at.Sub(w.clock.Now())).To(BeNumerically("<=", time.Minute))
		w.end()
		stop()
	})

	It("goes to the fetcher that its lease was delivered to", func() {
		slow := w.hangs()
		first, second := w.fetcher(few), w.fetcher(few)
		stop := first.run()
		keys := fill(slow, 10)
		Eventually(func() int { return first.parked("host_busy") }).Should(Equal(len(keys) - perHost + 1))
		var moved []pipeline.Key
		for _, k := range keys {
			if t := w.timerOf(k); t != nil {
				moved = append(moved, k)
			}
		}
		stopped := make(chan struct{})
		go func() { defer close(stopped); stop() }() // it reads no more
		defer func() { <-stopped }()
		second.run()
		for _, k := range moved {
			w.fire(w.timerOf(k).Due)
		}
		Eventually(slow.gets.Load).Should(BeEquivalentTo(2 * (perHost - 1)))
		w.end()
		Eventually(w.contents).Should(Equal(len(keys)))
		Expect(slow.gets.Load()).To(BeEquivalentTo(len(keys)), "no GET is made twice")
	})

	It("holds no worker, also if a person asks for many keys of a slow host", func() {
		slow, quick := w.hangs(), serve(says("hello there"))
		f := w.fetcher(func(o *fetcherOptions) { o.now = time.Now })
		f.run()
		for i := range 300 {
			w.publish(w.want(fmt.Sprintf("%s/%d", slow.URL, i), named("greedy", i), func(v *v1.Want) {
				v.Namespace, v.Cause, v.Now = "greedy", v1.Cause_CAUSE_NOW, "1"
			}))
		}
		parked := func() int { return f.parked("host_busy") }
		Eventually(parked).Should(Equal(300 - 7))
		// A lease ends after 20 s at the earliest, which a slow machine reaches.
		Consistently(parked).WithTimeout(3*time.Second).Should(BeNumerically("<", 2*300), "no key asks again and again")
		for i := range 5 {
			w.publish(w.want(fmt.Sprintf("%s/%d", quick.URL, i), named("modest", i), in("modest")))
		}
		Eventually(quick.gets.Load).WithTimeout(2 * time.Second).Should(BeEquivalentTo(5))
		Expect(parked()).To(Equal(300 - 7))
	})

	It("does not wait for a slot of the namespace that asks for the same URL", func() {
		slow := w.hangs()
		f := w.fetcher(few)
		for i := range 20 {
			w.publish(w.want(fmt.Sprintf("%s/%d", slow.URL, i), named("greedy", i), in("greedy")))
		}
		w.publish(w.want(slow.URL+"/19", in("modest")))
		f.run()
		Eventually(slow.gets.Load).Should(BeEquivalentTo(perHost), "the slot that is kept for another namespace")
	})
})
