package engine_test

import (
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/deploy/testkit/natstest"
	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

var _ = Describe("A broker in trouble", func() {
	Context("with a full stream of results", func() {
		var (
			o *origin
			f *fetcher
		)
		BeforeEach(func() {
			w = newWorld(natstest.Options{}, pipeline.Topology{MaxResultBytes: 20_000})
			o = serve(says(strings.Repeat("x", 15_000)))
			f = w.fetcher(func(o *fetcherOptions) { o.inProgressEvery = 50 * time.Millisecond })
			f.fetch(w.want(o.URL, named("first", 0)))
			w.publish(w.want(o.URL + "/another"))
		})

		It("gets the body as soon as the writer has made room", func() {
			beats := w.beats()
			f.run()
			Eventually(f.logged("stream is full")).Should(Equal(1))
			Eventually(beats).Should(BeNumerically(">", 2), "the message stays with this fetcher")
			Eventually(w.pending).Should(BeEquivalentTo(1))

			stream := suitetest.Must(w.js.Stream(w.ctx, pipeline.Results))
			Expect(stream.Purge(w.ctx)).To(Succeed())

			Eventually(w.results).Should(HaveLen(1))
			Eventually(w.pending).Should(BeZero())
			Expect(o.gets.Load()).To(BeEquivalentTo(2), "the body was kept, not fetched again")
			Expect(f.logged("takes messages again")()).To(BeZero(), "the stream may have room for one message only")
			w.clock.Advance(10 * time.Second)
			w.publish(w.want(serve(says("hello there")).URL))
			Eventually(f.logged("takes messages again")).Should(Equal(1))
			Expect(f.logged("stream is full")()).To(Equal(1))
		})

		Context("and a claimed key,", func() {
			var claimed uint64
			BeforeEach(func() {
				Expect(w.next().Ack()).To(Succeed())
				w.due(w.want(o.URL+"/another"), &v1.Due{Cause: v1.Cause_CAUSE_PARKED, Unended: 1})
				f.run()
				Eventually(f.logged("stream is full")).Should(Equal(1))
				requests := suitetest.Must(w.js.Stream(w.ctx, pipeline.Requests))
				claimed = suitetest.Must(requests.GetLastMsgForSubject(w.ctx, key.TimerSubject())).Sequence
			})

			It("keeps its claim until the writer has made room", func() {
				const shorter = pipeline.AckWait - 5*time.Second
				for range 4 { // the broker fires a claim that is not renewed in time
					w.clock.Advance(shorter)
					at := w.clock.Now().Add(pipeline.AckWait)
					Eventually(func() time.Time { return w.timer().at }).Should(BeTemporally("==", at))
				}
				Expect(w.timer().GetUnended()).To(BeEquivalentTo(2), "it is still the same attempt")
				Expect(suitetest.Must(w.js.Stream(w.ctx, pipeline.Results)).Purge(w.ctx)).To(Succeed())

				Eventually(w.results).Should(HaveLen(1))
				Expect(w.result().GetContent().GetBody()).To(HaveLen(15_000))
				Expect(w.result().GetSequence()).To(Equal(claimed), "the fence")
				Eventually(w.timer).Should(BeNil())
				Expect(w.pending()).To(BeZero())
				Expect(o.gets.Load()).To(BeEquivalentTo(2), "the body was kept, not fetched again")
				Expect(w.deadLetters()).To(BeEmpty())
			})

			It("gives the body up if the want is replaced", func() {
				w.publish(w.want(serve(says("hello there")).URL))
				Eventually(w.results).Should(HaveLen(2), "there is room for a short body")
				w.clock.Advance(pipeline.AckWait)
				Eventually(f.value(`messages_total{outcome="superseded"}`)).Should(BeEquivalentTo(1))
				Expect(w.timer()).To(BeNil())
				Expect(w.lastResult().GetContent().GetBody()).To(BeEquivalentTo("hello there"))
			})
		})

		It("gets the message back from a draining fetcher", func() {
			stop := f.run()
			Eventually(f.logged("stream is full")).Should(Equal(1))
			began := time.Now()
			stop()
			Expect(time.Since(began)).To(BeNumerically("<", pipeline.AckWait*2/3))
			m := w.next()
			// An open request of the draining fetcher may receive it again, and gives it back, too.
			Expect(suitetest.Must(m.Metadata()).NumDelivered).To(BeNumerically(">=", 2))
			Expect(time.Since(began)).To(BeNumerically("<", pipeline.AckWait*4/5), "the message was given back before AckWait")
		})
	})

	It("gets the body after an outage during the GET", func() {
		o, fetching, proceed := held("hello there")
		w.publish(w.want(o.URL, every(10*time.Minute)))
		f := w.fetcher()
		f.run()
		Eventually(fetching).Should(BeClosed())
		w.server.Stop()
		close(proceed)
		Eventually(f.logged("broker does not respond")).Should(Equal(1))
		Expect(w.server.Start()).To(Succeed())

		Eventually(w.results).Should(HaveLen(1))
		Expect(w.timer()).NotTo(BeNil())
		Expect(o.gets.Load()).To(BeEquivalentTo(1))
		Expect(f.logged("broker does not respond")()).To(Equal(1), "one line per change of state")
	})

	It("that refuses a timer for its size gets a dead letter, without a retry", func() {
		o := serve(says("hello there"))
		w.publish(w.want(o.URL, every(10*time.Minute)))
		requests := suitetest.Must(w.js.Stream(w.ctx, pipeline.Requests))
		config := requests.CachedInfo().Config
		config.MaxMsgSize = 64
		Expect(w.js.UpdateStream(w.ctx, config)).Error().NotTo(HaveOccurred())
		w.fetcher().step()
		Expect(w.deadLetters()).To(ConsistOf(HaveField("Failure.Class", v1.FailureClass_FAILURE_CLASS_MALFORMED)))
		Eventually(w.pending).Should(BeZero())
	})
})
