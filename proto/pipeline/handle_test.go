package pipeline_test

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/types"
	"google.golang.org/protobuf/proto"

	"github.com/kv8s/curl-me-that/deploy/testkit/natstest"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

// M1: every message is acknowledged, rescheduled, or stored with its reason.
var _ = Describe("Consume with dispositions", func() {
	var (
		js   jetstream.JetStream
		c    *pipeline.Client
		acks func() []string
	)
	BeforeEach(func() {
		s, own, _ := natstest.Ensured(GinkgoTB(), pipeline.Topology{})
		js, c = own, pipeline.NewClient(own)
		acks = watchAcks(natstest.Connect(GinkgoTB(), s).Conn())
	})
	publish := func(ctx context.Context, k pipeline.Key) {
		GinkgoHelper()
		must(c.PublishWant(ctx, natstest.Want(k, "https://a.example/x?token=secret"), 0))
	}
	pending := func(ctx context.Context) func() int { return func() int { return outstanding(ctx, js) } }

	DescribeTable("retries a message",
		func(ctx SpecContext, first pipeline.Disposition, word, ack string) {
			publish(ctx, key)
			r := consume(ctx, js, fetcher, func(_ context.Context, d *pipeline.Delivery) pipeline.Disposition {
				if d.Number() == 1 {
					return first
				}
				return pipeline.Ack()
			})
			Eventually(r.ended).Should(HaveExactElements(word, "ack"))
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
		Expect(deadLetters(ctx, c)).To(under("WriteFailed"))
		kept := new(v1.DeadLetter)
		Expect(proto.Unmarshal(deadLetters(ctx, c)[0].Data, kept)).To(Succeed())
		Expect(kept.GetWant().GetUrl()).To(Equal("https://a.example/x?token=secret"), "it can be replayed")
		Expect(kept.GetSubject()).To(Equal(key.Want()))
	})

	It("publishes one dead letter even if its acknowledgement is lost", func(ctx SpecContext) {
		publish(ctx, key)
		consumer := must(js.Consumer(ctx, pipeline.Requests, pipeline.FetcherConsumer))
		m := must(consumer.Next())
		handling := pipeline.NewConsumer(js, fetcher, always(pipeline.DeadLetter(pipeline.ErrMalformed)))
		for range 2 {
			Expect(handling.Handle(ctx, unacknowledged{m}).String()).To(Equal("dead_letter"))
		}
		Expect(deadLetters(ctx, c)).To(HaveLen(1))
	})

	It("retries a message whose dead letter cannot be published", func(ctx SpecContext) {
		Expect(js.DeleteStream(ctx, pipeline.Failures)).To(Succeed())
		publish(ctx, key)
		r := consume(ctx, js, fetcher, always(pipeline.DeadLetter(pipeline.ErrMalformed)))
		Eventually(r.ended).Should(HaveExactElements("retry"))
		Expect(r.errors()[0]).To(MatchError(ContainSubstring("publish dead letter")))
		must(pipeline.Ensure(ctx, js, pipeline.Topology{}))
		Eventually(r.ended).Should(HaveExactElements("retry", "dead_letter"))
		Expect(deadLetters(ctx, c)).To(HaveLen(1))
	})

	It("retries a message whose handler panics, and continues with others", func(ctx SpecContext) {
		publish(ctx, natstest.Numbered(1))
		publish(ctx, natstest.Numbered(2))
		r := consume(ctx, js, fetcher, func(_ context.Context, d *pipeline.Delivery) pipeline.Disposition {
			if d.Subject() == natstest.Numbered(1).Want() && d.Number() == 1 {
				panic("index out of range")
			}
			return pipeline.Ack()
		})
		Eventually(r.ended).Should(ConsistOf("retry", "ack", "ack"))
		Expect(r.errors()).To(ConsistOf(MatchError(pipeline.ErrPanic)))
		Expect(r.errors()[0]).To(MatchError(ContainSubstring("index out of range")))
		Expect(list(r, &r.dispositions)).To(ContainElement(
			HaveField("PanicStack()", ContainSubstring("handle_test.go"))))
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

	It("stores a message whose handler keeps panicking, and stops calling the handler", func(ctx SpecContext) {
		o := fetcher
		o.MaxUnended = 2
		publish(ctx, key)
		var calls atomic.Int32
		r := consume(ctx, js, o, func(context.Context, *pipeline.Delivery) pipeline.Disposition {
			calls.Add(1)
			panic("always")
		})
		Eventually(r.ended, 20*time.Second).Should(HaveExactElements("retry", "retry", "dead_letter"))
		Expect(calls.Load()).To(BeEquivalentTo(2))
		Expect(deadLetters(ctx, c)).To(under("Poison"))
	})
})

// deadLetters returns all dead letters.
func deadLetters(ctx context.Context, c *pipeline.Client) (all []pipeline.Message) {
	GinkgoHelper()
	for m, err := range c.Scan(ctx, pipeline.Range{Stream: pipeline.Failures, Subject: ">"}) {
		Expect(err).NotTo(HaveOccurred())
		all = append(all, m)
	}
	return all
}

// under matches the only dead letter of the key by its reason.
func under(reason string) types.GomegaMatcher {
	return HaveExactElements(HaveField("Subject", key.DeadLetter(reason, "a.example")))
}

// unacknowledged is a message whose acknowledgements do not reach the server.
type unacknowledged struct{ jetstream.Msg }

// Ack does nothing.
func (unacknowledged) Ack() error { return nil }

// watchAcks returns a function that returns the acknowledgements that were sent to the server.
func watchAcks(nc *nats.Conn) func() []string {
	GinkgoHelper()
	acks := must(nc.SubscribeSync("$JS.ACK.>"))
	Expect(nc.Flush()).To(Succeed())
	var sent []string
	return func() []string {
		for m, err := acks.NextMsg(time.Millisecond); err == nil; m, err = acks.NextMsg(time.Millisecond) {
			sent = append(sent, string(m.Data))
		}
		return sent
	}
}
