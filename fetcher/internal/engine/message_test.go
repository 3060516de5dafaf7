package engine_test

import (
	"time"

	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/deploy/testkit/natstest"
	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

var _ = Describe("A message", func() {
	var (
		f *fetcher
		o *origin
	)
	BeforeEach(func() {
		f = w.fetcher()
		o = serve(says("hello there"))
	})

	DescribeTable("becomes a dead letter if it cannot be decoded, and does not delay others",
		func(subject string, data string, named pipeline.Key) {
			Expect(w.js.Publish(w.ctx, subject, []byte(data))).Error().NotTo(HaveOccurred())
			w.publish(w.want(o.URL))

			f.step()
			deadLetter := w.deadLetter()
			Expect(deadLetter.GetFailure().GetClass()).To(Equal(v1.FailureClass_FAILURE_CLASS_MALFORMED))
			Expect(deadLetter.GetSubject()).To(Equal(subject))
			Expect(deadLetter.GetPayload()).To(BeEquivalentTo(data))
			reason, _, k, err := pipeline.ParseDeadLetter(w.messages(pipeline.DeadLetters)[0].Subject)
			Expect(err).NotTo(HaveOccurred())
			Expect(reason).To(Equal("Malformed"))
			Expect(k).To(Equal(named))

			f.step()
			Expect(w.result().GetContent()).NotTo(BeNil())
			Eventually(w.pending).Should(BeZero())
		},
		Entry("payload of a want", natstest.Numbered(1).WantSubject(), "garbage", natstest.Numbered(1)),
		Entry("payload of a due", natstest.Numbered(1).DueSubject(), "\xff\xff", natstest.Numbered(1)),
		Entry("empty due", natstest.Numbered(1).DueSubject(), "", natstest.Numbered(1)),
		Entry("subject with too few tokens", "curl.want.x", "garbage", pipeline.Key{}),
		Entry("subject with a broken escape", "curl.want.ns.na%2me.key", "", pipeline.Key{}),
	)

	It("is acknowledged if it is a tombstone", func() {
		Expect(w.client.PublishTombstone(w.ctx, key, 0)).Error().NotTo(HaveOccurred())
		f.step()
		Eventually(w.pending).Should(BeZero(), "the server handles acknowledgements asynchronously")
		Expect(w.results()).To(BeEmpty())
	})

	Describe("that is due", func() {
		var (
			want     *v1.Want
			sequence uint64
		)
		BeforeEach(func() {
			want = w.want(o.URL)
			sequence = w.publish(want)
			Expect(w.next().Ack()).To(Succeed())
		})

		nothingHappens := func() {
			GinkgoHelper()
			f.step()
			Expect(o.gets.Load()).To(BeZero())
			Expect(w.results()).To(BeEmpty())
			Expect(w.timer()).To(BeNil())
		}

		DescribeTable("is acknowledged if its want was", func(change func() error) {
			Expect(change()).To(Succeed())
			Expect(w.next().Ack()).To(Succeed())
			w.fire(&v1.Due{Want: want, WantSequence: sequence})
			nothingHappens()
			Eventually(w.pending).Should(BeZero())
		},
			Entry("replaced", func() error { w.publish(w.want(o.URL + "/newer")); return nil }),
			Entry("removed", func() error { _, err := w.client.PublishTombstone(w.ctx, key, sequence); return err }),
		)

		It("is acknowledged after three lookups if its key has no want", func() {
			stranger := w.want(o.URL, func(w *v1.Want) { w.Name = "stranger" })
			w.fire(&v1.Due{Want: stranger, WantSequence: sequence})
			for range 3 {
				Eventually(w.pending).Should(BeEquivalentTo(1))
				nothingHappens()
			}
			Eventually(w.pending).Should(BeZero())
		})

		It("is given back until the replica has its want", func() {
			w.fire(&v1.Due{Want: want, WantSequence: sequence})
			catchUp := w.replicaLags()
			nothingHappens()
			catchUp()
			f.step()
			Eventually(w.contents).Should(Equal(1))
			Eventually(w.pending).Should(BeZero())
		})

		It("is given back if it belongs to a newer want than the replica's", func() {
			w.fire(&v1.Due{Want: want, WantSequence: sequence + 100})
			nothingHappens()
			Eventually(w.pending).Should(BeEquivalentTo(1))
			m := w.next()
			Expect(suitetest.Must(m.Metadata()).NumDelivered).To(BeEquivalentTo(2))
			Expect(m.Ack()).To(Succeed())
		})

		It("uses the current want, not the one in the timer", func() {
			remembered := w.want(o.URL + "/remembered")
			w.fire(&v1.Due{Want: remembered, WantSequence: sequence})
			f.step()
			Expect(w.result().GetWant().GetUrl()).To(Equal(o.URL))
		})
	})

	It("for a key that already has its body only sets the timer of the refresh, which fetches", func() {
		settled := func(w *v1.Want) { w.Cached = &v1.Cached{Sha256: pipeline.Digest("hello there")} }
		f.fetch(w.want(o.URL, settled, every(10*time.Minute)))
		Expect(o.gets.Load()).To(BeZero())
		f.elapse()
		Expect(o.gets.Load()).To(BeEquivalentTo(1))
		Expect(w.results()).To(BeEmpty())
	})
})

// unacknowledged is a message whose acknowledgement gets lost, like after a kill.
type unacknowledged struct{ jetstream.Msg }

func (unacknowledged) Ack() error { return nil }

var _ = It("A killed fetcher causes one more GET, whose result is newer than the first", func() {
	o := serve(says("hello there"))
	w.publish(w.want(o.URL, every(10*time.Minute)))
	m := w.next()
	w.fetcher().handle(unacknowledged{m})
	Expect(m.Nak()).To(Succeed())
	w.fetcher().step() // another one takes over
	// The writer takes one result of each trigger, by its fence.
	Eventually(func() int {
		sequences := map[uint64]bool{}
		for _, r := range w.results() {
			sequences[r.GetSequence()] = true
		}
		return len(sequences)
	}).Should(Equal(2))
	Expect(o.gets.Load()).To(BeEquivalentTo(2))
	Eventually(func() v1.Cause { return w.timer().GetCause() }).Should(Equal(v1.Cause_CAUSE_REFRESH))
	Eventually(w.pending).Should(BeZero())
})
