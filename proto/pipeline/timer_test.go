package pipeline_test

import (
	"context"
	"crypto/rand"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/kv8s/curl-me-that/deploy/testkit/natstest"
	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

// lateness is the maximum delay of a timer on a busy machine.
const lateness = 5 * time.Second

var _ = Describe("A timer", func() {
	// wanted publishes a want and returns a due for it.
	wanted := func(k pipeline.Key) *v1.Due {
		GinkgoHelper()
		due := natstest.Due(GinkgoTB(), js, k)
		due.Cause, due.Attempts, due.FirstFailedAt = v1.Cause_CAUSE_RETRY, 3, timestamppb.New(time.Unix(1, 2))
		due.Reported, due.Cached = v1.FailureClass_FAILURE_CLASS_TIMEOUT, &v1.Cached{Etag: `"e"`}
		return due
	}

	It("fires at its time, to the fraction of a second, with its payload", func(ctx SpecContext) {
		const timers = 20
		at := make([]time.Time, timers)
		for n := range timers {
			// A time truncated to whole seconds would make most of them fire early.
			at[n] = time.Now().Add(400*time.Millisecond + time.Duration(n)*77*time.Millisecond)
			suitetest.Must(client.SetTimer(ctx, wanted(natstest.Numbered(n)), at[n]))
		}
		for n := range timers {
			m := fired(ctx, natstest.Numbered(n))
			Expect(m.Time).To(BeTemporally(">=", at[n]))
			Expect(m.Time).To(BeTemporally("<=", at[n].Add(lateness)))
			Expect(last(ctx, natstest.Numbered(n).TimerSubject())).To(BeNil())
			due := suitetest.Must(pipeline.DecodeDue(natstest.Numbered(n), m.Data))
			Expect(due.GetWantSequence()).To(Equal(sequence(ctx, natstest.Numbered(n))))
			Expect(due.GetAttempts()).To(BeEquivalentTo(3))
			Expect(due.GetFirstFailedAt().AsTime()).To(BeTemporally("==", time.Unix(1, 2)))
			Expect(due.GetCached().GetEtag()).To(Equal(`"e"`))
			Expect(proto.Equal(due.GetWant(), natstest.Want(natstest.Numbered(n), "https://a.example"))).To(BeTrue())
			Expect(time.ParseDuration(m.Header.Get("Nats-TTL"))).To(Equal(pipeline.DueTTL))
		}
	})

	It("fires at once if its time has passed", func(ctx SpecContext) {
		now := time.Now()
		suitetest.Must(client.SetTimer(ctx, wanted(key), now.Add(-time.Hour)))
		Expect(fired(ctx, key).Time).To(BeTemporally("<=", now.Add(lateness)))
	})

	DescribeTable("survives the server",
		func(ctx SpecContext, end func() error, pause time.Duration) {
			early, late := time.Now().Add(300*time.Millisecond), time.Now().Add(1200*time.Millisecond)
			suitetest.Must(client.SetTimer(ctx, wanted(natstest.Numbered(1)), early))
			suitetest.Must(client.SetTimer(ctx, wanted(natstest.Numbered(2)), late))
			Expect(end()).To(Succeed())
			Eventually(time.Now).WithPolling(5 * time.Millisecond).Should(BeTemporally(">=", early.Add(pause)))
			Expect(server.Start()).To(Succeed())
			back := time.Now()

			js = natstest.Connect(GinkgoTB(), server)
			overdue := fired(ctx, natstest.Numbered(1))
			Expect(overdue.Time).To(BeTemporally("<=", back.Add(lateness)))
			pending := fired(ctx, natstest.Numbered(2))
			Expect(pending.Time).To(BeTemporally(">=", late))
			Expect(pending.Time).To(BeTemporally("<=", late.Add(lateness)))
		},
		Entry("being restarted", func() error { server.Stop(); return nil }, 100*time.Millisecond),
		Entry("being killed", func() error { return server.Kill() }, 100*time.Millisecond),
	)

	It("is refused after its want was replaced or removed", func(ctx SpecContext) {
		due := wanted(key)
		next := suitetest.Must(client.PublishWant(ctx, natstest.Want(key, "https://b.example"), due.GetWantSequence()))
		Expect(client.SetTimer(ctx, due, time.Now())).Error().
			To(And(MatchError(pipeline.ErrSuperseded), MatchError(ContainSubstring(key.String()))))
		Expect(last(ctx, key.TimerSubject())).To(BeNil())

		suitetest.Must(client.PublishTombstone(ctx, key, next))
		due.WantSequence = next
		Expect(client.SetTimer(ctx, due, time.Now())).Error().To(MatchError(pipeline.ErrSuperseded))

		Expect(stream(ctx, pipeline.Requests).Purge(ctx)).To(Succeed())
		Expect(client.SetTimer(ctx, due, time.Now())).Error().To(MatchError(pipeline.ErrSuperseded))
		Expect(last(ctx, key.TimerSubject())).To(BeNil())
	})

	It("replaces the previous one", func(ctx SpecContext) {
		due := wanted(key)
		suitetest.Must(client.SetTimer(ctx, due, time.Now().Add(2*time.Second)))
		at := time.Now().Add(2500 * time.Millisecond)
		due.Attempts = 4
		suitetest.Must(client.SetTimer(ctx, due, at))
		Expect(stream(ctx, pipeline.Requests).CachedInfo().State.Msgs).To(BeEquivalentTo(2))

		m := fired(ctx, key)
		Expect(m.Time).To(BeTemporally(">=", at))
		second := suitetest.Must(pipeline.DecodeDue(key, m.Data))
		Expect(second.GetAttempts()).To(BeEquivalentTo(4))
		// want, first timer, second timer, due of the second
		Expect(stream(ctx, pipeline.Requests).CachedInfo().State.LastSeq).To(BeEquivalentTo(4))
	})

	DescribeTable("does not fire after it was cancelled",
		func(ctx SpecContext, restart func() error) {
			due, at := wanted(natstest.Numbered(1)), time.Now().Add(1500*time.Millisecond)
			suitetest.Must(client.SetTimer(ctx, due, at))
			suitetest.Must(client.SetTimer(ctx, wanted(natstest.Numbered(2)), at.Add(500*time.Millisecond)))
			Expect(client.CancelTimer(ctx, natstest.Numbered(1), due.GetWantSequence()+1)).To(MatchError(pipeline.ErrSuperseded))
			Expect(client.CancelTimer(ctx, natstest.Numbered(1), due.GetWantSequence())).To(Succeed())
			Expect(last(ctx, natstest.Numbered(1).TimerSubject())).To(BeNil())
			if restart != nil {
				Expect(restart()).To(Succeed())
				Expect(server.Start()).To(Succeed())
				js = natstest.Connect(GinkgoTB(), server)
			}
			fired(ctx, natstest.Numbered(2))
			Expect(last(ctx, natstest.Numbered(1).DueSubject())).To(BeNil())
		},
		Entry("on a running server", nil),
		Entry("on a killed server", func() error { return server.Kill() }),
	)

	It("does not block the next want right after it was cancelled", func(ctx SpecContext) {
		due := wanted(key)
		suitetest.Must(client.SetTimer(ctx, due, time.Now().Add(time.Hour)))
		Expect(client.CancelTimer(ctx, key, due.GetWantSequence())).To(Succeed())
		next := suitetest.Must(client.PublishWant(ctx, natstest.Want(key, "https://b.example"), due.GetWantSequence()))
		due.WantSequence = next
		suitetest.Must(client.PublishDue(ctx, due, "replay"))
	})

	It("can be replaced by sequence while it is pending", func(ctx SpecContext) {
		due := wanted(key)
		first := suitetest.Must(client.SetTimer(ctx, due, time.Now().Add(time.Hour)))
		second := suitetest.Must(client.SetTimer(ctx, due, time.Now().Add(time.Hour)))
		replace := func(last uint64) error { _, err := client.ReplaceTimer(ctx, due, time.Now(), last); return err }
		Expect(replace(first)).To(MatchError(pipeline.ErrSuperseded))
		at := time.Now().Add(time.Hour)
		third := suitetest.Must(client.ReplaceTimer(ctx, due, at, second))
		Expect(client.ReplaceTimer(ctx, due, at, second)).To(Equal(third), "the first response may have been lost")
		Expect(replace(second)).To(MatchError(pipeline.ErrSuperseded), "the timer of another fetcher")
		second, due.Attempts = third, 4
		Expect(client.ReplaceTimer(ctx, due, at, first)).Error().To(MatchError(pipeline.ErrSuperseded))
		Expect(replace(second)).To(Succeed())
		fired(ctx, key)
		Expect(replace(second)).To(MatchError(pipeline.ErrSuperseded))

		other := wanted(natstest.Numbered(1))
		set := suitetest.Must(client.SetTimer(ctx, other, time.Now().Add(time.Hour)))
		next := natstest.Want(natstest.Numbered(1), "https://b.example")
		suitetest.Must(client.PublishWant(ctx, next, other.GetWantSequence()))
		Expect(client.ReplaceTimer(ctx, other, time.Now(), set)).Error().To(MatchError(pipeline.ErrSuperseded))
		Expect(last(ctx, natstest.Numbered(1).TimerSubject())).To(BeNil())
	})
})

// fired waits for the timer of a key to fire.
func fired(ctx context.Context, k pipeline.Key) *jetstream.RawStreamMsg {
	GinkgoHelper()
	var m *jetstream.RawStreamMsg
	Eventually(func() *jetstream.RawStreamMsg { m = last(ctx, k.DueSubject()); return m }).ShouldNot(BeNil())
	return m
}

// content returns the result of a fetch, with an incompressible body.
func content(k pipeline.Key, seq uint64, size int) *v1.Result {
	body := make([]byte, size)
	_, _ = rand.Read(body)
	return &v1.Result{
		Want: natstest.Want(k, "https://a.example"), Sequence: seq,
		Outcome: &v1.Result_Content{Content: &v1.Content{Body: body}},
	}
}
