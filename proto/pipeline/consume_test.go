package pipeline_test

import (
	"bytes"
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/types"
	"google.golang.org/protobuf/proto"

	"github.com/kv8s/curl-me-that/deploy/testkit/natstest"
	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

var _ = Describe("Consume", func() {
	It("waits until the consumer exists, and reports that once", func(ctx SpecContext) {
		blank(natstest.Options{})
		r := consume(ctx, js, fetcher, always(pipeline.Ack()))
		Eventually(r.states).Should(HaveLen(1))
		Expect(r.states()[0]).To(MatchError(jetstream.ErrStreamNotFound))
		Consistently(r.states, time.Second).Should(HaveLen(1), "each retry would report it again")

		suitetest.Must(pipeline.Ensure(ctx, js, pipeline.Topology{}))
		suitetest.Must(client.PublishWant(ctx, natstest.Want(key, "https://a.example"), 0))
		Eventually(r.handled).Should(ConsistOf(key.WantSubject()))
		Eventually(r.states).Should(HaveLen(2))
		Expect(r.states()[1]).NotTo(HaveOccurred())
	})

	It("reports that it does not read while the consumer is missing", func(ctx SpecContext) {
		r := consume(ctx, js, fetcher, always(pipeline.Ack()))
		Eventually(r.states).Should(HaveLen(1))
		Expect(r.state()).NotTo(HaveOccurred())
		Expect(js.DeleteConsumer(ctx, pipeline.Requests, pipeline.FetcherConsumer)).To(Succeed())
		Eventually(r.state).Should(MatchError(jetstream.ErrConsumerNotFound))
		Expect(r.state()).To(MatchError(ContainSubstring("consumer fetcher of stream CURL_REQUESTS")))
		reported := len(r.states())
		Consistently(r.states, time.Second).Should(HaveLen(reported))
	})

	It("handles up to Concurrency messages at a time", func(ctx SpecContext) {
		publishWants(ctx, 50, 10)
		var now, most atomic.Int32
		full := make(chan struct{})
		fill := sync.OnceFunc(func() { close(full) })
		r := consume(ctx, js, fetcher, acking(func(context.Context, *pipeline.Delivery) {
			if raise(&most, now.Add(1)); most.Load() >= 4 {
				fill()
			}
			defer now.Add(-1)
			<-full
			wait(ctx, 5*time.Millisecond)
		}))
		Eventually(r.handled).Should(HaveLen(50))
		Expect(most.Load()).To(BeEquivalentTo(4))
	})

	It("handles up to MaxBytes at a time, and a larger message alone", func(ctx SpecContext) {
		const bound = 100 << 10
		for n, size := range []int{40 << 10, 40 << 10, 150 << 10, 40 << 10, 40 << 10, 40 << 10, 150 << 10, 150 << 10, 10} {
			Expect(client.PublishResult(ctx, content(natstest.Numbered(n), uint64(n+1), size))).To(Succeed())
		}
		var now, most, atOnce, mostAtOnce atomic.Int32
		r := consume(ctx, js, pipeline.ConsumeOptions{
			Stream: pipeline.Results, Consumer: pipeline.WriterConsumer, Concurrency: 8, MaxBytes: bound,
		}, acking(func(_ context.Context, m *pipeline.Delivery) {
			size := int32(min(len(m.Data()), bound))
			raise(&most, now.Add(size))
			raise(&mostAtOnce, atOnce.Add(1))
			wait(ctx, 50*time.Millisecond)
			atOnce.Add(-1)
			now.Add(-size)
		}))
		Eventually(r.handled).Should(HaveLen(9))
		Expect(most.Load()).To(BeNumerically("<=", bound))
		Expect(mostAtOnce.Load()).To(BeNumerically(">=", 2))
	})

	It("on shutdown returns waiting messages at once, and finishes the others", func(ctx SpecContext) {
		publishWants(ctx, 20, 10)
		finish := make(chan struct{})
		var cancelled atomic.Bool
		stopping, stop := context.WithCancel(ctx)
		first := consume(stopping, js, fetcher, acking(func(ctx context.Context, _ *pipeline.Delivery) {
			<-finish
			cancelled.Store(cancelled.Load() || ctx.Err() != nil)
		}))
		Eventually(first.begun).Should(HaveLen(4))
		// More messages wait in the buffer, and one waits for a slot.
		Eventually(func() int { return outstanding(ctx) }).Should(BeNumerically(">", 5))

		stop()
		var mu sync.Mutex
		deliveries := map[string]uint64{}
		second := consume(ctx, natstest.Connect(GinkgoTB(), server),
			fetcher, acking(func(_ context.Context, m *pipeline.Delivery) {
				defer GinkgoRecover()
				mu.Lock()
				defer mu.Unlock()
				deliveries[m.Subject()] = m.NumDelivered()
			}))
		Eventually(second.handled, soon).Should(HaveLen(16), "AckWait is 30 s")
		Expect(second.handled()).NotTo(ContainElements(first.begun()))
		Expect(deliveries).To(HaveEach(BeNumerically("<=", 2)), "a returned message must not go back to the same client")
		Expect(first.done).NotTo(BeClosed(), "it waits for handlers in progress")

		close(finish)
		Eventually(first.done).Should(BeClosed())
		Expect(first.handled()).To(HaveLen(4))
		Expect(cancelled.Load()).To(BeFalse())
		Eventually(func() int { return outstanding(ctx) }).Should(BeZero())
		Consistently(second.handled, 300*time.Millisecond).Should(HaveLen(16))
	})

	It("treats a paused consumer like one without messages", func(ctx SpecContext) {
		r := consume(ctx, js, fetcher, always(pipeline.Ack()))
		Eventually(r.states).Should(HaveLen(1))
		suitetest.Must(js.PauseConsumer(ctx, pipeline.Requests, pipeline.FetcherConsumer, time.Now().Add(time.Hour)))
		publishWants(ctx, 1, 10)
		Consistently(r.handled, 3*time.Second).Should(BeEmpty())
		suitetest.Must(js.ResumeConsumer(ctx, pipeline.Requests, pipeline.FetcherConsumer))
		Eventually(r.handled).Should(HaveLen(1))
		Expect(r.states()).To(HaveLen(1))
	})

	It("continues soon after a request for messages was lost, and does not report that", func(ctx SpecContext) {
		suitetest.Must(js.Conn().Subscribe(lostRequests+">", func(*nats.Msg) {})) // otherwise the server reports the loss
		publishWants(ctx, 20, 10)
		broken := &losing{server: server, lost: 2}
		r := consume(ctx, natstest.Connect(GinkgoTB(), server, nats.InProcessServer(broken)), fetcher, always(pipeline.Ack()))
		Eventually(r.handled, 5*time.Second).Should(HaveLen(20))
		Expect(broken.requests.Load()).To(BeNumerically(">", broken.lost))
		Expect(r.states()).To(HaveExactElements(BeNil()))
	})

	It("ends while the server is unavailable", func(ctx SpecContext) {
		stopping, stop := context.WithCancel(ctx)
		r := consume(stopping, js, fetcher, always(pipeline.Ack()))
		Eventually(r.states).Should(HaveLen(1))
		server.Stop()
		stop()
		Eventually(r.done, soon).Should(BeClosed())
	})

	It("loses no message while all slots are busy for longer than the heartbeat interval", func(ctx SpecContext) {
		var faults atomic.Int32
		js = natstest.Connect(GinkgoTB(), server,
			nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) { faults.Add(1) }))
		finish := make(chan struct{})
		r := consume(ctx, js, fetcher,
			acking(func(context.Context, *pipeline.Delivery) { <-finish }))
		publishWants(ctx, 4, 10)
		Eventually(r.begun).Should(HaveLen(4))
		wait(ctx, 4*time.Second) // heartbeats and the end of a request arrive

		for n := range 4 {
			suitetest.Must(client.PublishWant(ctx, natstest.Want(natstest.Numbered(10+n), "https://a.example"), 0))
		}
		Eventually(func() int { return outstanding(ctx) }).Should(BeNumerically(">", 4))
		close(finish)
		Eventually(r.handled, soon).Should(HaveLen(8), "AckWait is 30 s")
		Expect(faults.Load()).To(BeZero())
	})
})

const requests, lostRequests = "$JS.API.CONSUMER.MSG.NEXT.", "$JS.API.CONSUMER.MSG.LOST."

// losing is a connection that loses the request for messages with number lost.
type losing struct {
	net.Conn
	server   *natstest.Server
	lost     int32
	requests atomic.Int32
}

func (l *losing) InProcessConn() (conn net.Conn, err error) {
	l.Conn, err = l.server.InProcessConn()
	return l, err
}

func (l *losing) Write(b []byte) (int, error) {
	if bytes.Contains(b, []byte(requests)) && l.requests.Add(1) == l.lost {
		b = bytes.Replace(b, []byte(requests), []byte(lostRequests), 1)
	}
	return l.Conn.Write(b)
}

// outstanding returns the number of unacknowledged messages of the fetchers.
func outstanding(ctx context.Context) int {
	GinkgoHelper()
	return suitetest.Must(js.Consumer(ctx, pipeline.Requests, pipeline.FetcherConsumer)).CachedInfo().NumAckPending
}

// raise sets most to n if n is larger.
func raise(most *atomic.Int32, n int32) {
	for old := most.Load(); n > old; old = most.Load() {
		if most.CompareAndSwap(old, n) {
			return
		}
	}
}

// wait waits for d, or until ctx is done.
func wait(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// soon is well below AckWait.
const soon = 20 * time.Second

// watchAcks returns a function that returns the acknowledgements that were sent to the server.
func watchAcks(nc *nats.Conn) func() []string {
	GinkgoHelper()
	acks := suitetest.Must(nc.SubscribeSync("$JS.ACK.>"))
	Expect(nc.Flush()).To(Succeed())
	var sent []string
	return func() []string {
		for m, err := acks.NextMsg(time.Millisecond); err == nil; m, err = acks.NextMsg(time.Millisecond) {
			sent = append(sent, string(m.Data))
		}
		return sent
	}
}

// unacknowledged is a message whose acknowledgements do not reach the server.
type unacknowledged struct{ jetstream.Msg }

// Ack does nothing.
func (unacknowledged) Ack() error { return nil }

// M1: every message is acknowledged, rescheduled, or stored with its reason.
var _ = Describe("Consume with dispositions", func() {
	var acks func() []string
	BeforeEach(func() { acks = watchAcks(natstest.Connect(GinkgoTB(), server).Conn()) })
	publish := func(ctx context.Context, k pipeline.Key) {
		GinkgoHelper()
		suitetest.Must(client.PublishWant(ctx, natstest.Want(k, "https://a.example/x?token=secret"), 0))
	}
	pending := func(ctx context.Context) func() int { return func() int { return outstanding(ctx) } }

	DescribeTable("retries a message",
		func(ctx SpecContext, first pipeline.Disposition, word, ack string) {
			publish(ctx, key)
			r := consume(ctx, js, fetcher, func(_ context.Context, d *pipeline.Delivery) pipeline.Disposition {
				if d.NumDelivered() == 1 {
					return first
				}
				return pipeline.Ack()
			})
			Eventually(r.ended).Should(ConsistOf(word, "ack")) // the second handling may end first
			Eventually(acks).Should(HaveExactElements(MatchRegexp(ack), "+ACK"))
			Eventually(pending(ctx)).Should(BeZero())
		},
		Entry("after a given delay", pipeline.Retry(50*time.Millisecond), "retry", `^-NAK \{"delay": 50000000\}$`),
		Entry("after a growing delay by default", pipeline.Retry(0), "retry", `^-NAK \{"delay": \d{9,10}\}$`),
		Entry("if its handler decides nothing", pipeline.Disposition{}, "retry", `^-NAK \{"delay": \d{9,10}\}$`),
		Entry("at once in another process", pipeline.GiveBack(), "give_back", `^-NAK$`),
	)

	It("publishes a dead letter with its reason", func(ctx SpecContext) {
		publish(ctx, key)
		why := &pipeline.ClassError{Class: v1.FailureClass_FAILURE_CLASS_WRITE_FAILED, Err: errors.New("protected")}
		r := consume(ctx, js, fetcher, always(pipeline.DeadLetter(why)))
		Eventually(r.ended).Should(HaveExactElements("dead_letter"))
		Eventually(pending(ctx)).Should(BeZero())
		Expect(deadLetters()).To(under("WriteFailed"))
		kept := new(v1.DeadLetter)
		Expect(proto.Unmarshal(deadLetters()[0].Data, kept)).To(Succeed())
		Expect(kept.GetWant().GetUrl()).To(Equal("https://a.example/x?token=secret"), "it can be replayed")
		Expect(kept.GetSubject()).To(Equal(key.WantSubject()))
		Expect(kept.GetPayload()).NotTo(BeEmpty())
		stored := suitetest.Must(client.LastMessage(ctx, pipeline.Requests, key.WantSubject()))
		Expect(kept.GetLastFailedAt().AsTime()).To(BeTemporally("==", stored.Time), "whatever the wall clock says")
	})

	It("publishes one dead letter even if its acknowledgement is lost", func(ctx SpecContext) {
		publish(ctx, key)
		consumer := suitetest.Must(js.Consumer(ctx, pipeline.Requests, pipeline.FetcherConsumer))
		m := suitetest.Must(consumer.Next())
		handling := pipeline.NewConsumer(js, fetcher, always(pipeline.DeadLetter(pipeline.ErrMalformed)))
		for range 2 {
			Expect(handling.Handle(ctx, unacknowledged{m}).String()).To(Equal("dead_letter"))
		}
		Expect(deadLetters()).To(HaveLen(1))
	})

	It("retries a message whose dead letter cannot be published", func(ctx SpecContext) {
		Expect(js.DeleteStream(ctx, pipeline.DeadLetters)).To(Succeed())
		publish(ctx, key)
		r := consume(ctx, js, fetcher, always(pipeline.DeadLetter(pipeline.ErrMalformed)))
		Eventually(r.ended).Should(HaveExactElements("retry"))
		Expect(r.errors()[0]).To(MatchError(ContainSubstring("publish dead letter")))
		suitetest.Must(pipeline.Ensure(ctx, js, pipeline.Topology{}))
		Eventually(r.ended).Should(HaveExactElements("retry", "dead_letter"))
		Expect(deadLetters()).To(HaveLen(1))
	})

	It("retries a message whose handler panics, and continues with others", func(ctx SpecContext) {
		publish(ctx, natstest.Numbered(1))
		publish(ctx, natstest.Numbered(2))
		r := consume(ctx, js, fetcher, func(_ context.Context, d *pipeline.Delivery) pipeline.Disposition {
			if d.Subject() == natstest.Numbered(1).WantSubject() && d.NumDelivered() == 1 {
				panic("index out of range")
			}
			return pipeline.Ack()
		})
		Eventually(r.ended).Should(ConsistOf("retry", "ack", "ack"))
		Expect(r.errors()).To(ConsistOf(MatchError("handler panicked: index out of range")))
		Expect(list(r, &r.dispositions)).To(ContainElement(
			HaveField("PanicStack()", ContainSubstring("consume_test.go"))))
		Eventually(pending(ctx)).Should(BeZero())
	})

	It("reports progress of a message until it has ended", func(ctx SpecContext) {
		o := fetcher
		o.InProgressEvery = 10 * time.Millisecond
		publish(ctx, key)
		finish := make(chan struct{})
		r := consume(ctx, js, o, func(context.Context, *pipeline.Delivery) pipeline.Disposition {
			<-finish
			return pipeline.Retry(time.Hour)
		})
		Eventually(acks).Should(ContainElements("+WPI", "+WPI", "+WPI"))
		close(finish)
		Eventually(r.ended).Should(HaveLen(1))
		Eventually(acks).Should(ContainElement(HavePrefix("-NAK")))
		Consistently(func() string { all := acks(); return all[len(all)-1] },
			100*time.Millisecond).Should(HavePrefix("-NAK"))
	})
})

// deadLetters returns all dead letters.
func deadLetters() []*jetstream.RawStreamMsg {
	GinkgoHelper()
	return natstest.Messages(GinkgoTB(), js, pipeline.DeadLetters)
}

// under matches the only dead letter of the key by its reason.
func under(reason string) types.GomegaMatcher {
	return HaveExactElements(HaveField("Subject", key.DeadLetterSubject(reason, "a.example")))
}
