package pipeline_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/kv8s/curl-me-that/deploy/testkit/natstest"
	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

var _ = Describe("A want", func() {
	It("is created if there is none, and replaced by sequence", func(ctx SpecContext) {
		Expect(client.LastWant(ctx, key)).Error().To(MatchError(pipeline.ErrNoMessage))

		first := natstest.Want(key, "https://a.example")
		one := suitetest.Must(client.PublishWant(ctx, first, 0))
		expectWant(ctx, first, one)

		second := natstest.Want(key, "https://b.example")
		two := suitetest.Must(client.PublishWant(ctx, second, one))
		Expect(two).To(BeNumerically(">", one))
		expectWant(ctx, second, two)
		Expect(stream(ctx, pipeline.Requests).CachedInfo().State.Msgs).To(BeEquivalentTo(1))
	})

	DescribeTable("is refused if its subject does not hold the expected message:",
		func(ctx SpecContext, expected func(current uint64) uint64) {
			suitetest.Must(client.PublishWant(ctx, natstest.Want(natstest.Numbered(1), "https://other.example"), 0))
			held := natstest.Want(key, "https://a.example")
			current := suitetest.Must(client.PublishWant(ctx, held, 0))
			Expect(client.PublishWant(ctx, natstest.Want(key, "https://b.example"), expected(current))).Error().
				To(And(MatchError(pipeline.ErrSuperseded), MatchError(ContainSubstring(key.String()))))
			expectWant(ctx, held, current)
		},
		Entry("no message", func(uint64) uint64 { return 0 }),
		Entry("an older message", func(current uint64) uint64 { return current - 1 }),
		Entry("a newer message", func(current uint64) uint64 { return current + 1 }),
	)

	It("counts as published if the response to an earlier try was lost", func(ctx SpecContext) {
		w := natstest.Want(key, "https://a.example")
		first := suitetest.Must(client.PublishWant(ctx, w, 0))
		w.ResourceVersion = "a later one"
		again := suitetest.Must(client.PublishWant(ctx, w, 0))
		Expect(again).To(Equal(first))
		Expect(stream(ctx, pipeline.Requests).CachedInfo().State.LastSeq).To(Equal(first))
	})

	DescribeTable("does not mistake another message for its own:",
		func(ctx SpecContext, other func(*v1.Want)) {
			w := natstest.Want(key, "https://a.example")
			held, ok := proto.Clone(w).(*v1.Want)
			Expect(ok).To(BeTrue())
			other(held)
			suitetest.Must(client.PublishWant(ctx, held, 0))
			Expect(client.PublishWant(ctx, w, 0)).Error().To(MatchError(pipeline.ErrSuperseded))
		},
		Entry("a want of another epoch", func(w *v1.Want) { w.Epoch++ }),
		Entry("a want that triggers no fetch", func(w *v1.Want) { w.Cached = &v1.Cached{Sha256: "00"} }),
		Entry("a want of another object with that name", func(w *v1.Want) { w.Uid = "another" }),
	)

	It("cancels the timer of its key and no other, unless it is refused", func(ctx SpecContext) {
		for _, k := range []pipeline.Key{key, natstest.Numbered(1)} {
			suitetest.Must(client.SetTimer(ctx, natstest.Due(GinkgoTB(), js, k), time.Now().Add(time.Hour)))
			Expect(last(ctx, k.TimerSubject())).NotTo(BeNil())
		}
		_, err := client.PublishWant(ctx, natstest.Want(key, "https://b.example"), 0)
		Expect(err).To(MatchError(pipeline.ErrSuperseded))
		Expect(last(ctx, key.TimerSubject())).NotTo(BeNil())
		suitetest.Must(client.PublishWant(ctx, natstest.Want(key, "https://b.example"), sequence(ctx, key)))
		Expect(last(ctx, key.TimerSubject())).To(BeNil())
		Expect(last(ctx, natstest.Numbered(1).TimerSubject())).NotTo(BeNil())
	})

	It("above the limit of its stream is refused", func(ctx SpecContext) {
		w := natstest.Want(key, "https://a.example")
		w.Status = strings.Repeat("x", pipeline.MaxRequestBytes)
		Expect(client.PublishWant(ctx, w, 0)).Error().To(MatchError(pipeline.ErrTooLarge))
	})

	It("has a sequence even if it cannot be decoded", func(ctx SpecContext) {
		for _, garbage := range [][]byte{
			{0xff},
			suitetest.Must(proto.Marshal(natstest.Want(natstest.Numbered(1), "https://a.example"))),
			suitetest.Must(proto.Marshal(&v1.Due{WantSequence: 1})),
		} {
			ack := suitetest.Must(js.Publish(ctx, key.WantSubject(), garbage))
			_, seq, err := client.LastWant(ctx, key)
			Expect(err).To(MatchError(pipeline.ErrMalformed))
			Expect(seq).To(Equal(ack.Sequence))
		}
		_, seq, _ := client.LastWant(ctx, key)
		w := natstest.Want(key, "https://a.example")
		healed := suitetest.Must(client.PublishWant(ctx, w, seq))
		expectWant(ctx, w, healed)
	})

	It("is named in the error if there is no stream", func(ctx SpecContext) {
		Expect(js.DeleteStream(ctx, pipeline.Requests)).To(Succeed())
		_, err := client.PublishWant(ctx, natstest.Want(key, "https://a.example"), 0)
		Expect(err).To(MatchError(ContainSubstring(key.String())))
		Expect(err).NotTo(MatchError(pipeline.ErrSuperseded))
		Expect(client.LastWant(ctx, key)).Error().
			To(And(MatchError(ContainSubstring(key.String())), Not(MatchError(pipeline.ErrNoMessage))))
	})

	Describe("that is no longer needed", func() {
		var seq uint64
		BeforeEach(func(ctx SpecContext) {
			due := natstest.Due(GinkgoTB(), js, key)
			suitetest.Must(client.SetTimer(ctx, due, time.Now().Add(time.Hour)))
			seq = due.GetWantSequence()
		})

		It("leaves a tombstone that expires, and no timer", func(ctx SpecContext) {
			tomb := suitetest.Must(client.PublishTombstone(ctx, key, seq))
			have, at, err := client.LastWant(ctx, key)
			Expect(err).NotTo(HaveOccurred())
			Expect(have).To(BeNil())
			Expect(at).To(Equal(tomb))
			Expect(last(ctx, key.TimerSubject())).To(BeNil())
			m := last(ctx, key.WantSubject())
			Expect(m.Data).To(BeEmpty())
			Expect(m.Header.Get("KV-Operation")).To(Equal("DEL"))
			Expect(time.ParseDuration(m.Header.Get("Nats-TTL"))).To(Equal(pipeline.TombstoneTTL))
		})

		It("refuses a tombstone for another sequence, and accepts the right one twice", func(ctx SpecContext) {
			Expect(client.PublishTombstone(ctx, key, seq+1)).Error().To(MatchError(pipeline.ErrSuperseded))
			tomb := suitetest.Must(client.PublishTombstone(ctx, key, seq))
			again := suitetest.Must(client.PublishTombstone(ctx, key, seq))
			Expect(again).To(Equal(tomb))
		})

		It("can be published again after its tombstone, even if that has expired", func(ctx SpecContext) {
			tomb := suitetest.Must(client.PublishTombstone(ctx, key, seq))
			back := suitetest.Must(client.PublishWant(ctx, natstest.Want(key, "https://a.example"), tomb))
			tomb = suitetest.Must(client.PublishTombstone(ctx, key, back))

			Expect(stream(ctx, pipeline.Requests).DeleteMsg(ctx, tomb)).To(Succeed())
			Expect(client.PublishWant(ctx, natstest.Want(key, "https://a.example"), tomb)).Error().
				To(MatchError(pipeline.ErrSuperseded))
			Expect(client.LastWant(ctx, key)).Error().To(MatchError(pipeline.ErrNoMessage))
			suitetest.Must(client.PublishWant(ctx, natstest.Want(key, "https://a.example"), 0))
		})
	})
})

func TestSameRequest(t *testing.T) {
	t.Parallel()
	base := func() *v1.Want {
		w := natstest.Want(key, "https://a.example")
		w.Refresh, w.Now, w.Sha256, w.Fingerprint = durationpb.New(time.Minute), "1", "aa", "d"
		return w
	}
	for name, change := range map[string]func(*v1.Want){
		"uid":         func(w *v1.Want) { w.Uid = "x" },
		"url":         func(w *v1.Want) { w.Url = "x" },
		"now":         func(w *v1.Want) { w.Now = "x" },
		"sha256":      func(w *v1.Want) { w.Sha256 = "x" },
		"fingerprint": func(w *v1.Want) { w.Fingerprint = "x" },
		"refresh":     func(w *v1.Want) { w.Refresh = durationpb.New(time.Hour) },
		"expect":      func(w *v1.Want) { w.Expect = []string{"true"} },
		"select":      func(w *v1.Want) { w.Select = "body" },
		"no refresh":  func(w *v1.Want) { w.Refresh = nil },
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
func expectWant(ctx context.Context, w *v1.Want, seq uint64) {
	GinkgoHelper()
	have, at, err := client.LastWant(ctx, pipeline.KeyOf(w))
	Expect(err).NotTo(HaveOccurred())
	Expect(at).To(Equal(seq))
	Expect(proto.Equal(have, w)).To(BeTrue(), "have %s, want %s", have, w)
}

// last returns the last message on a subject of Requests, or nil.
func last(ctx context.Context, subject string) *jetstream.RawStreamMsg {
	GinkgoHelper()
	m, err := stream(ctx, pipeline.Requests).GetLastMsgForSubject(ctx, subject)
	if err != nil {
		Expect(err).To(MatchError(jetstream.ErrMsgNotFound))
		return nil
	}
	return m
}
