package engine_test

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/deploy/testkit/natstest"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

// forgetful loses the first response to each claim.
type forgetful struct {
	jetstream.JetStream

	mu   sync.Mutex
	lost map[string]bool
	// repeated counts the responses to repeated claims.
	repeated atomic.Int32
}

func (f *forgetful) PublishMsg(ctx context.Context, m *nats.Msg, o ...jetstream.PublishOpt) (*jetstream.PubAck, error) {
	ack, err := f.JetStream.PublishMsg(ctx, m, o...)
	due, notDue := pipeline.DecodeDue(key, m.Data)
	if notDue != nil || due.GetUnended() < 2 {
		return ack, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	text := m.Header.Get(jetstream.ScheduleHeader) + string(m.Data)
	if f.lost[text] {
		f.repeated.Add(1)
		return ack, err
	}
	f.lost[text] = true
	return nil, context.DeadlineExceeded
}

var _ = Describe("A claimed key", func() {
	var w *world
	BeforeEach(func() { w = newWorld(natstest.Options{}, pipeline.Topology{MaxResultBytes: 20_000}) })
	past := func() *v1.Due { return &v1.Due{Cause: v1.Cause_CAUSE_PARKED, Unended: 1} }
	large := func() *origin { return serve(says(strings.Repeat("x", 15_000))) }
	claims := func(f *fetcher, outcome string) func() (float64, error) {
		return f.value(`claims_total{outcome="` + outcome + `"}`)
	}

	It("is fetched once, although the responses to its claim and to each renewal are lost", func() {
		o := large()
		js := &forgetful{JetStream: w.connect(), lost: map[string]bool{}}
		f := w.fetcher(func(o *fetcherOptions) { o.js = js })
		f.fetch(w.want(o.URL, named("first", 0)))
		w.due(w.want(o.URL+"/another"), past())
		f.run()
		Eventually(f.logged("stream is full")).Should(Equal(1))
		for n := range int32(3) {
			Eventually(js.repeated.Load).Should(Equal(n + 1))
			Expect(w.timer().at).To(BeTemporally("==", w.clock.Now().Add(pipeline.AckWait)))
			w.clock.Advance(pipeline.AckWait * 5 / 6)
		}
		w.empty(pipeline.Results)
		Eventually(w.results).Should(HaveLen(1))
		Eventually(w.timer).Should(BeNil())
		Expect(o.gets.Load()).To(BeEquivalentTo(2))
		Expect(claims(f, "won")()).To(BeEquivalentTo(1))
		Expect(claims(f, "lost")()).To(BeZero())
	})

	It("is given back by a draining fetcher, which is no crash", func() {
		o := large()
		f := w.fetcher()
		f.fetch(w.want(o.URL, named("first", 0)))
		w.due(w.want(o.URL+"/another"), past())
		stop := f.run()
		Eventually(f.logged("stream is full")).Should(Equal(1))
		Expect(w.timer().GetUnended()).To(BeEquivalentTo(2))
		stop()
		Expect(w.timer().GetUnended()).To(BeEquivalentTo(1))
		Expect(w.timer().at).To(BeTemporally("==", w.clock.Now()), "another fetcher gets it at once")
	})
})

// empty removes all messages of a stream.
func (w *world) empty(name string) {
	GinkgoHelper()
	stream, err := w.js.Stream(w.ctx, name)
	Expect(err).NotTo(HaveOccurred())
	Expect(stream.Purge(w.ctx)).To(Succeed())
}
