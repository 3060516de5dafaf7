package pipeline_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/deploy/testkit/natstest"
	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

var _ = Describe("Loading", func() {
	It("fails without a stream", func(ctx SpecContext) {
		blank(natstest.Options{})
		Expect(client.LoadWants(ctx, func(pipeline.Message) error { return nil })).To(MatchError(jetstream.ErrStreamNotFound))
	})

	It("returns the last message of each of 5,000 wants, tombstones included, in stream order", func(ctx SpecContext) {
		const wants = 5000
		publishWants(ctx, wants, 300)
		tombs := map[string]uint64{}
		for n := 0; n < wants; n += 100 {
			k := natstest.Numbered(n)
			tombs[k.WantSubject()] = suitetest.Must(client.PublishTombstone(ctx, k, sequence(ctx, k)))
		}

		var loaded []pipeline.Message
		Expect(client.LoadWants(ctx, func(m pipeline.Message) error { loaded = append(loaded, m); return nil })).To(Succeed())
		Expect(loaded).To(HaveLen(wants))
		subjects := map[string]bool{}
		before := uint64(0)
		for _, e := range loaded {
			if e.Sequence <= before {
				Fail("out of order")
			}
			before = e.Sequence
			subjects[e.Subject] = true
			_, k, err := pipeline.ParseSubject(e.Subject)
			Expect(err).NotTo(HaveOccurred())
			w := suitetest.Must(pipeline.DecodeWant(k, e.Data))
			if tomb, ok := tombs[e.Subject]; ok != (w == nil) || ok && tomb != e.Sequence {
				Fail("tombstone and want of " + e.Subject + " are mixed up")
			}
		}
		Expect(subjects).To(HaveLen(wants))
		Expect(loaded[0].Time).To(BeTemporally("~", time.Now(), time.Minute))
	})

	It("counts timers", func(ctx SpecContext) {
		for n := range 3 {
			due := natstest.Due(GinkgoTB(), js, natstest.Numbered(n))
			suitetest.Must(client.SetTimer(ctx, due, time.Now().Add(time.Hour)))
		}
		Expect(client.CountTimers(ctx)).To(BeEquivalentTo(3))
	})

	It("ends if the remaining messages are removed meanwhile", func(ctx SpecContext) {
		const wants = 300
		publishWants(ctx, wants, 60<<10) // more than fits into one batch
		requests := stream(ctx, pipeline.Requests)
		loaded := 0
		Expect(client.LoadWants(ctx, func(pipeline.Message) error {
			if loaded++; loaded == 1 {
				return requests.Purge(ctx)
			}
			return nil
		})).To(Succeed())
		Expect(loaded).To(BeNumerically("<", wants))
	}, SpecTimeout(time.Minute))

	It("stops with the callback's error, and with the context's", func(ctx SpecContext) {
		publishWants(ctx, 50, 10)
		broken := errors.New("broken")
		calls := 0
		Expect(client.LoadWants(ctx, func(pipeline.Message) error { calls++; return broken })).To(MatchError(broken))
		Expect(calls).To(Equal(1))

		cancelled, cancel := context.WithCancel(ctx)
		var inside, late atomic.Int32
		Expect(client.LoadWants(cancelled, func(pipeline.Message) error {
			inside.Add(1)
			defer inside.Add(-1)
			if cancelled.Err() != nil {
				late.Add(1)
			}
			cancel()
			return nil
		})).To(MatchError(context.Canceled))
		Expect(inside.Load()).To(BeZero(), "no call is still running")
		Expect(late.Load()).To(BeZero())
	})
})

// publishWants publishes n wants, each of at least size bytes.
func publishWants(ctx context.Context, n, size int) {
	GinkgoHelper()
	var running sync.WaitGroup
	const publishers = 8
	for p := range publishers {
		running.Go(func() {
			defer GinkgoRecover()
			for i := p; i < n; i += publishers {
				w := natstest.Want(natstest.Numbered(i), "https://a.example")
				w.Status = strings.Repeat("x", size)
				suitetest.Must(client.PublishWant(ctx, w, 0))
			}
		})
	}
	running.Wait()
}
