package engine_test

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/types"

	"github.com/kv8s/curl-me-that/deploy/testkit/natstest"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

var _ = Describe("A key that is queued for a slot of its host", func() {
	const perHost = 3 // one namespace gets two of them
	few := func(o *fetcherOptions) { o.limits.PerHost = perHost }

	It("keeps the fast path of the writer", func() {
		want := w.want(serve(says("hello there")).URL)
		w.fetcher().fetchDue(want, &v1.Due{Cause: v1.Cause_CAUSE_PARKED})
		Expect(w.result().GetWant().GetStatus()).To(Equal(want.GetStatus()))
		Expect(w.result().GetWant().GetReadFirst()).To(BeFalse())
		Expect(w.result().GetCause()).To(Equal(v1.Cause_CAUSE_NEW))
	})

	DescribeTable("is fetched when a slot comes free,",
		func(left types.GomegaMatcher, change ...func(*v1.Want)) {
			slow := w.hangs()
			f := w.fetcher(few)
			f.run()
			keys := w.publishMany(slow, 20, key.Namespace, change...)
			Eventually(f.parked("host")).Should(BeEquivalentTo(len(keys) - perHost + 1))
			w.end()
			Eventually(w.contents).Should(Equal(len(keys)))
			for _, k := range keys {
				Eventually(func() *timer { return w.timerOf(k) }).Should(left)
			}
			Expect(w.pending()).To(BeZero())
			Expect(slow.gets.Load()).To(BeEquivalentTo(len(keys)))
			Expect(f.value(`claims_total{outcome="won"}`)()).To(BeEquivalentTo(len(keys) - perHost + 1))
		},
		Entry("and leaves no timer", BeNil()),
		Entry("and gets the timer of its refresh after its GET",
			And(Not(BeNil()), HaveField("GetCause()", v1.Cause_CAUSE_REFRESH)), every(10*time.Minute)),
	)

	It("has a claim that brings it back if the fetcher ends during the GET", func() {
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
		keys := w.publishMany(host, perHost, key.Namespace)
		Eventually(f.parked("host")).Should(BeEquivalentTo(1))
		close(release)
		Eventually(host.gets.Load).Should(BeEquivalentTo(perHost))
		Expect(w.waiting(keys)).To(HaveLen(1))
		claim := w.timerOf(w.waiting(keys)[0])
		Expect(claim.at).To(BeTemporally("==", w.clock.Now().Add(pipeline.AckWait)))
		Expect(claim.GetCause()).To(Equal(v1.Cause_CAUSE_PARKED))
		Expect(claim.GetUnended()).To(BeEquivalentTo(1))
	})

	It("becomes a dead letter after too many unfinished claims", func() {
		o := serve(says("hello there"))
		w.fetcher().fetchDue(w.want(o.URL), &v1.Due{Cause: v1.Cause_CAUSE_PARKED, Unended: 5})
		Expect(o.gets.Load()).To(BeZero())
		Expect(w.deadLetter().GetFailure().GetClass()).To(Equal(v1.FailureClass_FAILURE_CLASS_POISON))
	})

	DescribeTable("is claimed before its GET, so that fetchers that it ends are counted, if",
		func(deliveries int, past *v1.Due, unended int) {
			o, fetching, proceed := held("hello there")
			want := w.want(o.URL)
			if past == nil {
				w.publish(want)
			} else {
				w.due(want, past)
			}
			for range deliveries - 1 { // a drain returns messages
				Expect(w.next().Nak()).To(Succeed())
			}
			w.fetcher().step()
			Eventually(fetching).Should(BeClosed())
			Expect(w.timer().GetUnended()).To(BeEquivalentTo(unended))
			close(proceed)
			Eventually(w.contents).Should(Equal(1))
			Eventually(w.timer).Should(BeNil())
			Expect(w.pending()).To(BeZero())
			Expect(w.deadLetters()).To(BeEmpty())
		},
		Entry("its message is delivered again", 2, nil, 1),
		Entry("its message was returned ten times, which counts no more", 11, nil, 1),
		Entry("an earlier claim was not finished", 1, &v1.Due{Cause: v1.Cause_CAUSE_PARKED, Unended: 1}, 2),
	)

	It("keeps its place when its lease ends, at the cost of one message", func() {
		slow := w.hangs()
		f := w.fetcher(few)
		keys := w.publishMany(slow, perHost, key.Namespace)
		stop := f.run()
		Eventually(func() []pipeline.Key { return w.waiting(keys) }).ShouldNot(BeEmpty())
		k := w.waiting(keys)[0]
		since := w.timerOf(k).GetWaitingSince().AsTime()
		w.clock.Advance(time.Minute)
		w.fire(w.timerOf(k).Due)
		Eventually(f.value(`messages_total{outcome="queued"}`)).Should(BeEquivalentTo(1))
		Expect(w.timerOf(k).GetWaitingSince().AsTime()).To(BeTemporally("==", since))
		Expect(w.timerOf(k).at.Sub(w.clock.Now())).To(BeNumerically("<=", time.Minute))
		w.end()
		stop()
	})

	It("is fetched by the fetcher that gets its due", func() {
		slow := w.hangs()
		first, second := w.fetcher(few), w.fetcher(few)
		stop := first.run()
		keys := w.publishMany(slow, 10, key.Namespace)
		Eventually(first.parked("host")).Should(BeEquivalentTo(len(keys) - perHost + 1))
		moved := w.waiting(keys)
		stopped := make(chan struct{})
		go func() { defer close(stopped); stop() }() // it reads no more messages
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

	It("blocks no worker, even if a person requests many keys of a slow host", func() {
		slow, fast := w.hangs(), serve(says("hello there"))
		f := w.fetcher(func(o *fetcherOptions) { o.clock = clockOf(time.Now) })
		f.run()
		w.publishMany(slow, 300, "greedy", func(v *v1.Want) { v.Cause, v.Now = v1.Cause_CAUSE_NOW, "1" })
		parked := f.parked("host")
		Eventually(parked).Should(BeNumerically(">=", 300-7))
		// A lease lasts at least 20 s, so a slow machine may reach the end of some.
		once := BeNumerically("<", 2*300)
		Consistently(parked).WithTimeout(3*time.Second).Should(once, "no key is parked again and again")
		w.publishMany(fast, 5, "modest")
		Eventually(fast.gets.Load).WithTimeout(10 * time.Second).Should(BeEquivalentTo(5))
		Expect(parked()).To(once)
	})

	It("does not wait for another namespace that needs a slot for the same URL", func() {
		slow := w.hangs()
		f := w.fetcher(few)
		w.publishMany(slow, 20, "greedy")
		w.publish(w.want(slow.URL+"/19", in("modest")))
		f.run()
		Eventually(slow.gets.Load).Should(BeEquivalentTo(perHost), "the slot reserved for another namespace is used")
	})
})

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
