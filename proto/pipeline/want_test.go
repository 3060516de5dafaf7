package pipeline_test

import (
	"context"
	"crypto/rand"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/kv8s/curl-me-that/deploy/testkit/natstest"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

var _ = Describe("A want", func() {
	var (
		js jetstream.JetStream
		c  *pipeline.Client
	)
	BeforeEach(func() {
		js, c = ensured()
	})

	It("is created if there is none, and replaced by sequence", func(ctx SpecContext) {
		Expect(c.LastWant(ctx, key)).Error().To(MatchError(pipeline.ErrNoMessage))

		first := natstest.Want(key, "https://a.example")
		one := must(c.PublishWant(ctx, first, 0))
		expectWant(ctx, c, first, one)

		second := natstest.Want(key, "https://b.example")
		two := must(c.PublishWant(ctx, second, one))
		Expect(two).To(BeNumerically(">", one))
		expectWant(ctx, c, second, two)
		Expect(stream(ctx, js, pipeline.Requests).CachedInfo().State.Msgs).To(BeEquivalentTo(1))
	})

	DescribeTable("is refused if its subject does not hold the expected message:",
		func(ctx SpecContext, expected func(current uint64) uint64) {
			must(c.PublishWant(ctx, natstest.Want(natstest.Numbered(1), "https://other.example"), 0))
			held := natstest.Want(key, "https://a.example")
			current := must(c.PublishWant(ctx, held, 0))
			_, err := c.PublishWant(ctx, natstest.Want(key, "https://b.example"), expected(current))
			Expect(err).To(MatchError(pipeline.ErrSuperseded))
			Expect(err).To(MatchError(ContainSubstring(key.String())))
			expectWant(ctx, c, held, current)
		},
		Entry("no message", func(uint64) uint64 { return 0 }),
		Entry("an older message", func(current uint64) uint64 { return current - 1 }),
		Entry("a newer message", func(current uint64) uint64 { return current + 1 }),
	)

	It("counts as published if the response to an earlier try was lost", func(ctx SpecContext) {
		w := natstest.Want(key, "https://a.example")
		first := must(c.PublishWant(ctx, w, 0))
		w.ResourceVersion = "a later one"
		again := must(c.PublishWant(ctx, w, 0))
		Expect(again).To(Equal(first))
		Expect(stream(ctx, js, pipeline.Requests).CachedInfo().State.LastSeq).To(Equal(first))
	})

	DescribeTable("does not mistake another message for its own:",
		func(ctx SpecContext, other func(*v1.Want)) {
			w := natstest.Want(key, "https://a.example")
			held, ok := proto.Clone(w).(*v1.Want)
			Expect(ok).To(BeTrue())
			other(held)
			must(c.PublishWant(ctx, held, 0))
			Expect(c.PublishWant(ctx, w, 0)).Error().To(MatchError(pipeline.ErrSuperseded))
		},
		Entry("a want of another epoch", func(w *v1.Want) { w.Epoch++ }),
		Entry("a want that triggers no fetch", func(w *v1.Want) { w.Cached = &v1.Cached{Sha256: "00"} }),
		Entry("a want of another object with that name", func(w *v1.Want) { w.Uid = "another" }),
	)

	It("cancels the timer of its key and no other, unless it is refused", func(ctx SpecContext) {
		for _, k := range []pipeline.Key{key, natstest.Numbered(1)} {
			must(c.SetTimer(ctx, natstest.Due(GinkgoTB(), js, k), time.Now().Add(time.Hour)))
			Expect(last(ctx, js, k.Timer())).NotTo(BeNil())
		}
		_, err := c.PublishWant(ctx, natstest.Want(key, "https://b.example"), 0)
		Expect(err).To(MatchError(pipeline.ErrSuperseded))
		Expect(last(ctx, js, key.Timer())).NotTo(BeNil())
		must(c.PublishWant(ctx, natstest.Want(key, "https://b.example"), sequence(ctx, c, key)))
		Expect(last(ctx, js, key.Timer())).To(BeNil())
		Expect(last(ctx, js, natstest.Numbered(1).Timer())).NotTo(BeNil())
	})

	It("above the limit of its stream is refused", func(ctx SpecContext) {
		w := natstest.Want(key, "https://a.example")
		w.Status = strings.Repeat("x", pipeline.MaxRequestBytes)
		Expect(c.PublishWant(ctx, w, 0)).Error().To(MatchError(pipeline.ErrTooLarge))
	})

	It("has a sequence even if it cannot be decoded", func(ctx SpecContext) {
		for _, garbage := range [][]byte{
			{0xff},
			must(proto.Marshal(natstest.Want(natstest.Numbered(1), "https://a.example"))),
			must(proto.Marshal(&v1.Due{WantSequence: 1})),
		} {
			ack := must(js.Publish(ctx, key.Want(), garbage))
			_, seq, err := c.LastWant(ctx, key)
			Expect(err).To(MatchError(pipeline.ErrMalformed))
			Expect(seq).To(Equal(ack.Sequence))
		}
		_, seq, _ := c.LastWant(ctx, key)
		w := natstest.Want(key, "https://a.example")
		healed := must(c.PublishWant(ctx, w, seq))
		expectWant(ctx, c, w, healed)
	})

	It("is named in the error if there is no stream", func(ctx SpecContext) {
		Expect(js.DeleteStream(ctx, pipeline.Requests)).To(Succeed())
		_, err := c.PublishWant(ctx, natstest.Want(key, "https://a.example"), 0)
		Expect(err).To(MatchError(ContainSubstring(key.String())))
		Expect(err).NotTo(MatchError(pipeline.ErrSuperseded))
		_, _, err = c.LastWant(ctx, key)
		Expect(err).To(MatchError(ContainSubstring(key.String())))
		Expect(err).NotTo(MatchError(pipeline.ErrNoMessage))
	})

	Describe("that is no longer needed", func() {
		var seq uint64
		BeforeEach(func(ctx SpecContext) {
			due := natstest.Due(GinkgoTB(), js, key)
			must(c.SetTimer(ctx, due, time.Now().Add(time.Hour)))
			seq = due.GetWantSequence()
		})

		It("leaves a tombstone that expires, and no timer", func(ctx SpecContext) {
			tomb := must(c.PublishTombstone(ctx, key, seq))
			have, at, err := c.LastWant(ctx, key)
			Expect(err).NotTo(HaveOccurred())
			Expect(have).To(BeNil())
			Expect(at).To(Equal(tomb))
			Expect(last(ctx, js, key.Timer())).To(BeNil())
			m := last(ctx, js, key.Want())
			Expect(m.Data).To(BeEmpty())
			Expect(m.Header.Get("KV-Operation")).To(Equal("DEL"))
			Expect(time.ParseDuration(m.Header.Get("Nats-TTL"))).To(Equal(pipeline.TombstoneTTL))
		})

		It("refuses a tombstone for another sequence, and accepts the right one twice", func(ctx SpecContext) {
			Expect(c.PublishTombstone(ctx, key, seq+1)).Error().To(MatchError(pipeline.ErrSuperseded))
			tomb := must(c.PublishTombstone(ctx, key, seq))
			again := must(c.PublishTombstone(ctx, key, seq))
			Expect(again).To(Equal(tomb))
		})

		It("can be published again after its tombstone, even if that has expired", func(ctx SpecContext) {
			tomb := must(c.PublishTombstone(ctx, key, seq))
			back := must(c.PublishWant(ctx, natstest.Want(key, "https://a.example"), tomb))
			tomb = must(c.PublishTombstone(ctx, key, back))

			Expect(stream(ctx, js, pipeline.Requests).DeleteMsg(ctx, tomb)).To(Succeed())
			Expect(c.PublishWant(ctx, natstest.Want(key, "https://a.example"), tomb)).Error().
				To(MatchError(pipeline.ErrSuperseded))
			Expect(c.LastWant(ctx, key)).Error().To(MatchError(pipeline.ErrNoMessage))
			must(c.PublishWant(ctx, natstest.Want(key, "https://a.example"), 0))
		})
	})
})

func TestSameRequest(t *testing.T) {
	t.Parallel()
	base := func() *v1.Want {
		w := natstest.Want(key, "https://a.example")
		w.Refresh, w.Now, w.Sha256, w.Drift = durationpb.New(time.Minute), "1", "aa", "d"
		return w
	}
	for name, change := range map[string]func(*v1.Want){
		"uid":        func(w *v1.Want) { w.Uid = "x" },
		"url":        func(w *v1.Want) { w.Url = "x" },
		"now":        func(w *v1.Want) { w.Now = "x" },
		"sha256":     func(w *v1.Want) { w.Sha256 = "x" },
		"drift":      func(w *v1.Want) { w.Drift = "x" },
		"refresh":    func(w *v1.Want) { w.Refresh = durationpb.New(time.Hour) },
		"expect":     func(w *v1.Want) { w.Expect = []string{"true"} },
		"select":     func(w *v1.Want) { w.Select = "body" },
		"no refresh": func(w *v1.Want) { w.Refresh = nil },
	} {
		if other := base(); !pipeline.SameRequest(base(), other) {
			t.Error("a want does not make the same request as itself")
		} else if change(other); pipeline.SameRequest(base(), other) {
			t.Errorf("a want with another %s makes the same request", name)
		}
	}
	seen := base()
	seen.ResourceVersion, seen.Status, seen.ReadFirst, seen.Cause = "2", "{}", true, v1.Cause_CAUSE_AUDIT
	if !pipeline.SameRequest(base(), seen) {
		t.Error("a want from another version of the object makes another request")
	}
	zero, none := base(), base()
	zero.Refresh, none.Refresh = durationpb.New(0), nil
	if !pipeline.SameRequest(zero, none) {
		t.Error("an interval of zero differs from none")
	}
}

// expectWant fails unless the subject of w holds w at that sequence.
func expectWant(ctx context.Context, c *pipeline.Client, w *v1.Want, seq uint64) {
	GinkgoHelper()
	have, at, err := c.LastWant(ctx, pipeline.KeyOf(w))
	Expect(err).NotTo(HaveOccurred())
	Expect(at).To(Equal(seq))
	Expect(proto.Equal(have, w)).To(BeTrue(), "have %s, want %s", have, w)
}

// last returns the last message on a subject of Requests, or nil.
func last(ctx context.Context, js jetstream.JetStream, subject string) *jetstream.RawStreamMsg {
	GinkgoHelper()
	m, err := stream(ctx, js, pipeline.Requests).GetLastMsgForSubject(ctx, subject)
	if err != nil {
		Expect(err).To(MatchError(jetstream.ErrMsgNotFound))
		return nil
	}
	return m
}

func TestSubjects(t *testing.T) {
	t.Parallel()
	k := pipeline.Key{Namespace: "default", Name: "kube-root-ca.crt", Key: "my.data"}
	const tokens = "default.kube-root-ca%2Ecrt.my%2Edata"
	for want, got := range map[string]string{
		"curl.want." + tokens:                                 k.Want(),
		"curl.due." + tokens:                                  k.Due(),
		"curl.timer." + tokens:                                k.Timer(),
		"curl.result.content." + tokens:                       k.Content(),
		"curl.result.failure." + tokens:                       k.Failure(),
		"curl.result.reconcile." + tokens:                     k.Reconcile(),
		"curl.failure.Timeout.data%2Eexample%2Ecom." + tokens: k.DeadLetter("Timeout", "data.example.com"),
		"curl.failure.AddressDenied.%28address%29." + tokens:  k.DeadLetter("AddressDenied", "fe80::1%eth0"),
		"curl.failure.Malformed.%." + tokens:                  k.DeadLetter("Malformed", ""),
		"curl.failure.Malformed.%.%.%.%":                      pipeline.Key{}.DeadLetter("Malformed", ""),
		"curl.want.a_B-9.100%25%2A%3E.a%20b%09%0D%0A%C3%A4%00%FF": pipeline.Key{
			Namespace: "a_B-9", Name: "100%*>",
			Key: "a b\t\r\nä\x00\xff",
		}.Want(),
		"curl.want.a.b%2Ec." + strings.Repeat("x", 253): pipeline.Key{
			Namespace: "a", Name: "b.c",
			Key: strings.Repeat("x", 253),
		}.Want(),
		"curl.failure.Timeout." + strings.Repeat("h", 253) + "." + tokens: k.DeadLetter("Timeout", strings.Repeat("h", 4096)),
	} {
		if got != want {
			t.Errorf("subject is %q, want %q", got, want)
		}
	}
	if got, want := k.String(), "default/kube-root-ca.crt/my.data"; got != want {
		t.Errorf("String() = %q, want %q", got, want)
	}
}

// The server closes the connection of a client whose control line exceeds 4,096 bytes, which
// include the reply subject.
func TestSubjectsFitTheControlLine(t *testing.T) {
	t.Parallel()
	dots := strings.Repeat(".", 253)
	k := pipeline.Key{Namespace: strings.Repeat("n", 63), Name: dots, Key: dots}
	if got := k.DeadLetter("InvalidAnnotation", strings.Repeat(".", 64<<10)); len(got) > 3072 {
		t.Errorf("the longest subject has %d bytes", len(got))
	}
}

func TestParseSubjectRefuses(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{
		"", "curl", "curl.want", "curl.want.", "curl.want.a.b", "curl.want.a.b.c.d", "curl.want.a..c",
		"curl.want.*.b.c", "curl.want.a.b.>", "curl.wants.a.b.c", "CURL.want.a.b.c", "curl.result.a.b.c",
		"curl.result.other.a.b.c", "curl.failure.Timeout.host.a.b.c", "$JS.API.INFO", "curl.want.a.b.%2e", "curl.want.a.b.c%",
		"curl.want.a.b.%%", "curl.want.a.b.%2", "curl.want.a.b.%GG", "curl.want.a.b.%61", "curl.want.a.b.ä",
	} {
		if kind, k, err := pipeline.ParseSubject(bad); !errors.Is(err, pipeline.ErrSubject) {
			t.Errorf("ParseSubject(%q) = %v, %v, %v, want ErrSubject", bad, kind, k, err)
		}
	}
	for _, bad := range []string{
		"", "curl.failure", "curl.failure.", "curl.failure.Timeout", "curl.failure.Timeout.host",
		"curl.failure.Timeout.host.a.b",
		"curl.failure.Timeout.host.a.b.c.d", "curl.failure..host.a.b.c", "curl.failure.Timeout..a.b.c", "curl.want.a.b.c",
	} {
		if reason, host, k, err := pipeline.ParseDeadLetter(bad); !errors.Is(err, pipeline.ErrSubject) {
			t.Errorf("ParseDeadLetter(%q) = %q, %q, %v, %v, want ErrSubject", bad, reason, host, k, err)
		}
	}
}

func FuzzSubject(f *testing.F) {
	f.Add("default", "kube-root-ca.crt", "my.data", "Timeout", "data.example.com")
	f.Add("", "", "", "", "")
	f.Add("*", ">", "a.>", "..", "%")
	f.Add("a b", "\x00\r\n", "\xff", "%2E", "[::1]:80")
	f.Fuzz(func(t *testing.T, namespace, name, key, reason, host string) {
		k := pipeline.Key{Namespace: namespace, Name: name, Key: key}
		for kind, subject := range subjects(k) {
			tokens := 5
			if strings.HasPrefix(subject, "curl.result.") {
				tokens = 6
			}
			checkLiteral(t, subject, tokens)
			if gotKind, gotKey, err := pipeline.ParseSubject(subject); err != nil || gotKind != kind || gotKey != k {
				t.Errorf("ParseSubject(%q) = %v, %q, %v, want %v, %q", subject, gotKind, gotKey, err, kind, k)
			}
			if _, _, _, err := pipeline.ParseDeadLetter(subject); err == nil {
				t.Errorf("ParseDeadLetter(%q) accepts a subject of another kind", subject)
			}
		}
		subject := k.DeadLetter(reason, host)
		checkLiteral(t, subject, 7)
		gotReason, gotHost, gotKey, err := pipeline.ParseDeadLetter(subject)
		if err != nil || gotReason != reason || gotHost != host[:min(len(host), 253)] || gotKey != k {
			t.Errorf("ParseDeadLetter(%q) = %q, %q, %q, %v", subject, gotReason, gotHost, gotKey, err)
		}
		if _, _, err := pipeline.ParseSubject(subject); err == nil {
			t.Errorf("ParseSubject(%q) accepts a dead letter", subject)
		}
	})
}

// subjects returns the subjects of a key.
func subjects(k pipeline.Key) map[pipeline.Kind]string {
	return map[pipeline.Kind]string{
		pipeline.KindWant: k.Want(), pipeline.KindDue: k.Due(), pipeline.KindTimer: k.Timer(),
		pipeline.KindContent: k.Content(), pipeline.KindFailure: k.Failure(), pipeline.KindReconcile: k.Reconcile(),
	}
}

// checkLiteral fails if a subject has too many tokens for its kind, or one that NATS does not treat
// literally.
func checkLiteral(t *testing.T, subject string, tokens int) {
	t.Helper()
	parts := strings.Split(subject, ".")
	if len(parts) != tokens {
		t.Errorf("%q has %d tokens, want %d", subject, len(parts), tokens)
	}
	for _, part := range parts {
		if part == "" || strings.ContainsAny(part, "*> \t\r\n\f\x00") {
			t.Errorf("%q has the token %q", subject, part)
		}
	}
}

var _ = Describe("Loading", func() {
	It("fails without a stream", func(ctx SpecContext) {
		c := pipeline.NewClient(natstest.Connect(GinkgoTB(), natstest.Broker(GinkgoTB(), natstest.Options{})))
		Expect(c.LoadWants(ctx, func(pipeline.Message) error { return nil })).To(MatchError(jetstream.ErrStreamNotFound))
	})

	It("returns the last message of each of 5,000 wants, tombstones included, in stream order", func(ctx SpecContext) {
		_, c := ensured()
		const wants = 5000
		publishWants(ctx, c, wants, 300)
		tombs := map[string]uint64{}
		for n := 0; n < wants; n += 100 {
			k := natstest.Numbered(n)
			tombs[k.Want()] = must(c.PublishTombstone(ctx, k, sequence(ctx, c, k)))
		}

		var loaded []pipeline.Message
		Expect(c.LoadWants(ctx, func(m pipeline.Message) error { loaded = append(loaded, m); return nil })).To(Succeed())
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
			w := must(pipeline.DecodeWant(k, e.Data))
			if tomb, ok := tombs[e.Subject]; ok != (w == nil) || ok && tomb != e.Sequence {
				Fail("tombstone and want of " + e.Subject + " are mixed up")
			}
		}
		Expect(subjects).To(HaveLen(wants))
		Expect(loaded[0].Time).To(BeTemporally("~", time.Now(), time.Minute))
	})

	It("counts timers", func(ctx SpecContext) {
		js, c := ensured()
		for n := range 3 {
			due := natstest.Due(GinkgoTB(), js, natstest.Numbered(n))
			must(c.SetTimer(ctx, due, time.Now().Add(time.Hour)))
		}
		Expect(c.CountTimers(ctx)).To(BeEquivalentTo(3))
	})

	It("ends if the remaining messages are removed meanwhile", func(ctx SpecContext) {
		js, c := ensured()
		const wants = 300
		publishWants(ctx, c, wants, 60<<10) // more than fits into one batch
		requests := stream(ctx, js, pipeline.Requests)
		loaded := 0
		Expect(c.LoadWants(ctx, func(pipeline.Message) error {
			if loaded++; loaded == 1 {
				return requests.Purge(ctx)
			}
			return nil
		})).To(Succeed())
		Expect(loaded).To(BeNumerically("<", wants))
	}, SpecTimeout(time.Minute))

	It("stops with the callback's error, and with the context's", func(ctx SpecContext) {
		_, c := ensured()
		publishWants(ctx, c, 50, 10)
		broken := errors.New("broken")
		calls := 0
		Expect(c.LoadWants(ctx, func(pipeline.Message) error { calls++; return broken })).To(MatchError(broken))
		Expect(calls).To(Equal(1))

		cancelled, cancel := context.WithCancel(ctx)
		var inside, late atomic.Int32
		Expect(c.LoadWants(cancelled, func(pipeline.Message) error {
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
func publishWants(ctx context.Context, c *pipeline.Client, n, size int) {
	GinkgoHelper()
	var running sync.WaitGroup
	const publishers = 8
	for p := range publishers {
		running.Go(func() {
			defer GinkgoRecover()
			for i := p; i < n; i += publishers {
				w := natstest.Want(natstest.Numbered(i), "https://a.example")
				w.Status = strings.Repeat("x", size)
				must(c.PublishWant(ctx, w, 0))
			}
		})
	}
	running.Wait()
}

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
