package pipeline_test

import (
	"context"
	"crypto/rand"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/kv8s/curl-me-that/deploy/testkit/natstest"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

// lateness is the maximum delay of a timer on a busy machine.
const lateness = 5 * time.Second

var _ = Describe("A timer", func() {
	var (
		s  *natstest.Server
		js jetstream.JetStream
		c  *pipeline.Client
	)
	BeforeEach(func() {
		s, js, _ = natstest.Ensured(GinkgoTB(), pipeline.Topology{})
		c = pipeline.NewClient(js)
	})
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
			must(c.SetTimer(ctx, wanted(natstest.Numbered(n)), at[n]))
		}
		for n := range timers {
			m := fired(ctx, js, natstest.Numbered(n))
			Expect(m.Time).To(BeTemporally(">=", at[n]))
			Expect(m.Time).To(BeTemporally("<=", at[n].Add(lateness)))
			Expect(last(ctx, js, natstest.Numbered(n).Timer())).To(BeNil())
			due := must(pipeline.DecodeDue(natstest.Numbered(n), m.Data))
			Expect(due.GetWantSequence()).To(Equal(sequence(ctx, c, natstest.Numbered(n))))
			Expect(due.GetAttempts()).To(BeEquivalentTo(3))
			Expect(due.GetFirstFailedAt().AsTime()).To(BeTemporally("==", time.Unix(1, 2)))
			Expect(due.GetCached().GetEtag()).To(Equal(`"e"`))
			Expect(proto.Equal(due.GetWant(), natstest.Want(natstest.Numbered(n), "https://a.example"))).To(BeTrue())
			Expect(time.ParseDuration(m.Header.Get("Nats-TTL"))).To(Equal(pipeline.DueTTL))
		}
	})

	It("fires at once if its time has passed", func(ctx SpecContext) {
		now := time.Now()
		must(c.SetTimer(ctx, wanted(key), now.Add(-time.Hour)))
		Expect(fired(ctx, js, key).Time).To(BeTemporally("<=", now.Add(lateness)))
	})

	DescribeTable("survives the server",
		func(ctx SpecContext, end func() error, pause time.Duration) {
			early, late := time.Now().Add(300*time.Millisecond), time.Now().Add(1200*time.Millisecond)
			must(c.SetTimer(ctx, wanted(natstest.Numbered(1)), early))
			must(c.SetTimer(ctx, wanted(natstest.Numbered(2)), late))
			Expect(end()).To(Succeed())
			Eventually(time.Now).WithPolling(5 * time.Millisecond).Should(BeTemporally(">=", early.Add(pause)))
			Expect(s.Start()).To(Succeed())
			back := time.Now()

			js := natstest.Connect(GinkgoTB(), s)
			overdue := fired(ctx, js, natstest.Numbered(1))
			Expect(overdue.Time).To(BeTemporally("<=", back.Add(lateness)))
			pending := fired(ctx, js, natstest.Numbered(2))
			Expect(pending.Time).To(BeTemporally(">=", late))
			Expect(pending.Time).To(BeTemporally("<=", late.Add(lateness)))
		},
		Entry("being restarted", func() error { s.Stop(); return nil }, 100*time.Millisecond),
		Entry("being killed", func() error { return s.Kill() }, 100*time.Millisecond),
	)

	It("is refused after its want was replaced or removed", func(ctx SpecContext) {
		due := wanted(key)
		next := must(c.PublishWant(ctx, natstest.Want(key, "https://b.example"), due.GetWantSequence()))
		_, err := c.SetTimer(ctx, due, time.Now())
		Expect(err).To(MatchError(pipeline.ErrSuperseded))
		Expect(err).To(MatchError(ContainSubstring(key.String())))
		Expect(last(ctx, js, key.Timer())).To(BeNil())

		must(c.PublishTombstone(ctx, key, next))
		due.WantSequence = next
		Expect(c.SetTimer(ctx, due, time.Now())).Error().To(MatchError(pipeline.ErrSuperseded))

		Expect(stream(ctx, js, pipeline.Requests).Purge(ctx)).To(Succeed())
		Expect(c.SetTimer(ctx, due, time.Now())).Error().To(MatchError(pipeline.ErrSuperseded))
		Expect(last(ctx, js, key.Timer())).To(BeNil())
	})

	It("replaces the previous one", func(ctx SpecContext) {
		due := wanted(key)
		must(c.SetTimer(ctx, due, time.Now().Add(2*time.Second)))
		at := time.Now().Add(2500 * time.Millisecond)
		due.Attempts = 4
		must(c.SetTimer(ctx, due, at))
		Expect(stream(ctx, js, pipeline.Requests).CachedInfo().State.Msgs).To(BeEquivalentTo(2))

		m := fired(ctx, js, key)
		Expect(m.Time).To(BeTemporally(">=", at))
		second := must(pipeline.DecodeDue(key, m.Data))
		Expect(second.GetAttempts()).To(BeEquivalentTo(4))
		// want, first timer, second timer, due of the second
		Expect(stream(ctx, js, pipeline.Requests).CachedInfo().State.LastSeq).To(BeEquivalentTo(4))
	})

	DescribeTable("does not fire after it was cancelled",
		func(ctx SpecContext, restart func() error) {
			due, at := wanted(natstest.Numbered(1)), time.Now().Add(1500*time.Millisecond)
			must(c.SetTimer(ctx, due, at))
			must(c.SetTimer(ctx, wanted(natstest.Numbered(2)), at.Add(500*time.Millisecond)))
			Expect(c.CancelTimer(ctx, natstest.Numbered(1), due.GetWantSequence()+1)).To(MatchError(pipeline.ErrSuperseded))
			Expect(c.CancelTimer(ctx, natstest.Numbered(1), due.GetWantSequence())).To(Succeed())
			Expect(last(ctx, js, natstest.Numbered(1).Timer())).To(BeNil())
			if restart != nil {
				Expect(restart()).To(Succeed())
				Expect(s.Start()).To(Succeed())
				js = natstest.Connect(GinkgoTB(), s)
			}
			fired(ctx, js, natstest.Numbered(2))
			Expect(last(ctx, js, natstest.Numbered(1).Due())).To(BeNil())
		},
		Entry("on a running server", nil),
		Entry("on a killed server", func() error { return s.Kill() }),
	)

	It("does not block the next want right after it was cancelled", func(ctx SpecContext) {
		due := wanted(key)
		must(c.SetTimer(ctx, due, time.Now().Add(time.Hour)))
		Expect(c.CancelTimer(ctx, key, due.GetWantSequence())).To(Succeed())
		next := must(c.PublishWant(ctx, natstest.Want(key, "https://b.example"), due.GetWantSequence()))
		due.WantSequence = next
		must(c.PublishDue(ctx, due, "replay"))
	})

	It("can be replaced by sequence while it is pending", func(ctx SpecContext) {
		due := wanted(key)
		first := must(c.SetTimer(ctx, due, time.Now().Add(time.Hour)))
		second := must(c.SetTimer(ctx, due, time.Now().Add(time.Hour)))
		replace := func(last uint64) error { _, err := c.ReplaceTimer(ctx, due, time.Now(), last); return err }
		Expect(replace(first)).To(MatchError(pipeline.ErrSuperseded))
		due.Attempts = 4
		Expect(replace(second)).To(Succeed())
		fired(ctx, js, key)
		Expect(replace(second)).To(MatchError(pipeline.ErrSuperseded))

		other := wanted(natstest.Numbered(1))
		third := must(c.SetTimer(ctx, other, time.Now().Add(time.Hour)))
		must(c.PublishWant(ctx, natstest.Want(natstest.Numbered(1), "https://b.example"), other.GetWantSequence()))
		Expect(c.ReplaceTimer(ctx, other, time.Now(), third)).Error().To(MatchError(pipeline.ErrSuperseded))
		Expect(last(ctx, js, natstest.Numbered(1).Timer())).To(BeNil())
	})
})

// fired waits for the timer of a key to fire.
func fired(ctx context.Context, js jetstream.JetStream, k pipeline.Key) *jetstream.RawStreamMsg {
	GinkgoHelper()
	var m *jetstream.RawStreamMsg
	Eventually(func() *jetstream.RawStreamMsg { m = last(ctx, js, k.Due()); return m }).ShouldNot(BeNil())
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

var _ = Describe("A result", func() {
	DescribeTable("is published to the subject of its outcome",
		func(ctx SpecContext, r *v1.Result, subject string) {
			_, js, _ := natstest.Ensured(GinkgoTB(), pipeline.Topology{})
			r.Want, r.Sequence = natstest.Want(key, "https://a.example"), 1
			Expect(pipeline.NewClient(js).PublishResult(ctx, r)).To(Succeed())
			m := must(stream(ctx, js, pipeline.Results).GetMsg(ctx, 1))
			Expect(m.Subject).To(Equal(subject))
			got := must(pipeline.DecodeResult(key, m.Data))
			Expect(got.GetSequence()).To(BeEquivalentTo(1))
		},
		Entry("content", &v1.Result{Outcome: &v1.Result_Content{Content: &v1.Content{}}}, key.Content()),
		Entry("unmodified", &v1.Result{Outcome: &v1.Result_Unmodified{Unmodified: &v1.Unmodified{}}}, key.Failure()),
		Entry("failure", &v1.Result{Outcome: &v1.Result_Failure{Failure: &v1.Failure{}}}, key.Failure()),
		Entry("reconcile", &v1.Result{Outcome: &v1.Result_Reconcile{Reconcile: &v1.Reconcile{}}}, key.Reconcile()),
	)

	It("is stored even after a message of somebody else with the same id", func(ctx SpecContext) {
		_, js, _ := natstest.Ensured(GinkgoTB(), pipeline.Topology{})
		must(js.Publish(ctx, natstest.Numbered(1).Content(), nil, jetstream.WithMsgID("1.7.content")))
		Expect(pipeline.NewClient(js).PublishResult(ctx, content(key, 7, 10))).To(Succeed())
		Expect(stream(ctx, js, pipeline.Results).CachedInfo().State.Msgs).To(BeEquivalentTo(2))
	})

	It("is refused if the stream is full, and nothing is lost", func(ctx SpecContext) {
		_, js, _ := natstest.Ensured(GinkgoTB(), pipeline.Topology{MaxResultBytes: 64 << 10})
		c := pipeline.NewClient(js)
		accepted := 0
		for ; accepted < 20; accepted++ {
			if err := c.PublishResult(ctx, content(natstest.Numbered(accepted), uint64(accepted+1), 10<<10)); err != nil {
				Expect(err).To(MatchError(pipeline.ErrFull))
				Expect(err).To(MatchError(ContainSubstring(natstest.Numbered(accepted).String())))
				break
			}
		}
		Expect(accepted).To(BeNumerically("~", 6, 1))
		Expect(stream(ctx, js, pipeline.Results).CachedInfo().State.Msgs).To(BeEquivalentTo(accepted))

		refused := content(natstest.Numbered(accepted), uint64(accepted+1), 10<<10)
		Expect(c.PublishResult(ctx, refused)).To(MatchError(pipeline.ErrFull))
		ackNext(ctx, js)
		Eventually(func() error { return c.PublishResult(ctx, refused) }).Should(Succeed())
		m, err := stream(ctx, js, pipeline.Results).GetLastMsgForSubject(ctx, natstest.Numbered(accepted).Content())
		Expect(err).NotTo(HaveOccurred(), "its first try must not count as a duplicate")
		Expect(m.Sequence).To(BeEquivalentTo(accepted + 1))
	})

	It("that exceeds the server's max_payload fails with ErrTooLarge", func(ctx SpecContext) {
		s := natstest.Broker(GinkgoTB(), natstest.Options{MaxPayload: 64 << 10})
		js := natstest.Connect(GinkgoTB(), s)
		must(pipeline.Ensure(ctx, js, pipeline.Topology{}))
		c := pipeline.NewClient(js)
		Expect(c.PublishResult(ctx, content(key, 1, 64<<10))).To(MatchError(pipeline.ErrTooLarge))
		Expect(c.PublishResult(ctx, content(key, 1, 60<<10))).To(Succeed())
	})
})

var _ = Describe("A dead letter", func() {
	It("is stored once per id, under its reason and host", func(ctx SpecContext) {
		js, c := ensured()
		d := &v1.DeadLetter{
			Want:    natstest.Want(key, "https://data.example.com"),
			Failure: &v1.Failure{Class: v1.FailureClass_FAILURE_CLASS_TIMEOUT, Host: "data.example.com"},
		}
		Expect(c.PublishDeadLetter(ctx, key, d, "1.7")).To(Succeed())
		Expect(c.PublishDeadLetter(ctx, key, d, "1.7")).To(Succeed())
		Expect(c.PublishDeadLetter(ctx, key, d, "1.8")).To(Succeed())
		failures := stream(ctx, js, pipeline.Failures)
		Expect(failures.CachedInfo().State.Msgs).To(BeEquivalentTo(2))
		m := must(failures.GetMsg(ctx, 1))
		reason, host, k, err := pipeline.ParseDeadLetter(m.Subject)
		Expect(err).NotTo(HaveOccurred())
		Expect([]any{reason, host, k}).To(Equal([]any{"Timeout", "data.example.com", key}))
	})

	It("is stored for any form of host in its URL", func(ctx SpecContext) {
		s, _, _ := natstest.Ensured(GinkgoTB(), pipeline.Topology{})
		js := natstest.Connect(GinkgoTB(), s)
		c := pipeline.NewClient(js)
		d := &v1.DeadLetter{Failure: &v1.Failure{Host: strings.Repeat(".> *\r\n", 2000)}}
		Expect(c.PublishDeadLetter(ctx, key, d, "1.7")).To(Succeed())
		Expect(js.Conn().Stats().Reconnects).To(BeZero(),
			"the server closes the connection of a client that exceeds its control line")
	})
})

// ackNext acknowledges the oldest result.
func ackNext(ctx SpecContext, js jetstream.JetStream) {
	GinkgoHelper()
	writer := must(js.Consumer(ctx, pipeline.Results, pipeline.WriterConsumer))
	m := must(writer.Next(jetstream.FetchMaxWait(time.Second)))
	Expect(m.DoubleAck(ctx)).To(Succeed())
}

func broker() time.Time { return time.Date(2031, 5, 17, 11, 0, 0, 0, time.UTC) }

func TestTheTimeIsUnknownBeforeTheFirstStamp(t *testing.T) {
	if now := pipeline.NewClock().Now(); !now.IsZero() {
		t.Errorf("Now() = %s", now)
	}
}

func TestTheNewestStampWins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := pipeline.NewClock()
		c.Observe(broker().Add(-time.Hour)) // it waited in the stream
		c.Observe(broker())
		<-time.After(10 * time.Second)
		c.Observe(broker().Add(2 * time.Second)) // it waited for 8 s
		if now, want := c.Now(), broker().Add(10*time.Second); !now.Equal(want) {
			t.Errorf("Now() = %s, want %s", now, want)
		}
		c.Set(broker())
		if now := c.Now(); !now.Equal(broker()) {
			t.Errorf("Now() = %s after Set", now)
		}
	})
}

func TestRunAsksTheBrokerAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		c := pipeline.NewClock()
		asked, began := 0, time.Now()
		go c.Run(ctx, func(context.Context) (time.Time, error) {
			if asked++; asked == 1 {
				return time.Time{}, errors.New("no consumer yet")
			}
			return broker(), nil
		})
		done := make(chan struct{})
		c.Observe(broker().Add(-time.Hour)) // it waited in the stream
		time.AfterFunc(500*time.Millisecond, func() { close(done) })
		if c.Wait(done) {
			t.Error("a stamp alone makes the time known")
		}
		if !c.Wait(nil) || time.Since(began) != time.Second {
			t.Errorf("the time was known after %s", time.Since(began))
		}
		<-time.After(time.Second)
		if now, want := c.Now(), broker().Add(time.Second); !now.Equal(want) {
			t.Errorf("Now() = %s, want %s", now, want)
		}
		<-time.After(time.Minute)
		synctest.Wait()
		if asked != 3 {
			t.Errorf("asked %d times", asked)
		}
		cancel()
	})
}
