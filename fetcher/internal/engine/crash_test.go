package engine_test

import (
	"net/http"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/deploy/testkit/natstest"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

// unacknowledged is a message whose acknowledgement gets lost, like after a kill.
type unacknowledged struct{ jetstream.Msg }

func (unacknowledged) Ack() error { return nil }

var _ = Describe("A killed fetcher", func() {
	var w *world
	BeforeEach(func() { w = newWorld(natstest.Options{}, pipeline.Topology{}) })

	// killed lets one fetcher do everything except the acknowledgement, and another one take over.
	killed := func() {
		GinkgoHelper()
		m := w.next()
		w.fetcher().handle(unacknowledged{m})
		Expect(m.Nak()).To(Succeed())
		w.fetcher().step()
	}

	// triggers counts the triggers of all results. The writer takes one result of each, by its
	// fence.
	triggers := func() int {
		GinkgoHelper()
		sequences := map[uint64]bool{}
		for _, r := range w.results() {
			sequences[r.GetSequence()] = true
		}
		return len(sequences)
	}

	It("causes one more GET, and no results of other triggers", func() {
		o := serve(says("hello there"))
		w.publish(w.want(o.URL, every(10*time.Minute)))
		killed()
		Expect(o.gets.Load()).To(BeEquivalentTo(2))
		Expect(triggers()).To(Equal(1))
		Expect(w.timer()).NotTo(BeNil())
		Eventually(w.pending).Should(BeZero())
	})

	It("leaves one dead letter after the last attempt", func() {
		o := serve(fails(http.StatusNotFound))
		w.publish(w.want(o.URL))
		killed()
		Expect(w.deadLetters()).To(HaveLen(1))
		Expect(triggers()).To(Equal(1))
	})

	It("makes the next refresh publish the outcome again", func() {
		o := serve(tagged(`"v1"`, "hello there"))
		w.publish(w.want(o.URL, every(10*time.Minute)))
		killed()
		Expect(w.timer().GetCached()).To(BeNil())

		f := w.fetcher()
		w.fire(w.timer().Due)
		f.step()
		Expect(triggers()).To(Equal(2))
		Expect(w.timer().GetCached().GetEtag()).To(Equal(`"v1"`), "this one was delivered once")
	})
})
