package pipeline_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

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
