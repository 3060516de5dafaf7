package watcher_test

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

// want returns the want of a key, or nil.
func (w *world) want(ctx context.Context, key pipeline.Key) func() *v1.Want {
	return func() *v1.Want {
		want, _, err := w.pipeline.LastWant(ctx, key)
		if err != nil {
			return nil
		}
		return want
	}
}

// url returns the URL in the want of a key.
func (w *world) url(ctx context.Context, key pipeline.Key) func() string {
	return func() string { return w.want(ctx, key)().GetUrl() }
}

// retracted reports whether a key has a tombstone.
func (w *world) retracted(ctx context.Context, key pipeline.Key) func() bool {
	return func() bool {
		want, seq, err := w.pipeline.LastWant(ctx, key)
		return err == nil && want == nil && seq > 0
	}
}

// sequence returns the last sequence of a stream.
func (w *world) sequence(ctx context.Context, stream string) func() uint64 {
	return func() uint64 {
		s, err := w.js.Stream(ctx, stream)
		if err != nil {
			return 0
		}
		return s.CachedInfo().State.LastSeq
	}
}

// receive acknowledges all messages from now on, as fetchers do.
func (w *world) receive(ctx context.Context) {
	GinkgoHelper()
	consumer := must(w.js.Consumer(ctx, pipeline.Requests, pipeline.FetcherConsumer))
	consuming := must(consumer.Consume(func(m jetstream.Msg) { _ = m.Ack() }))
	DeferCleanup(consuming.Stop)
}

// tape records published messages, whether the stream accepts them or not.
type tape struct {
	mu       sync.Mutex
	messages []*nats.Msg
}

// record records messages on a subject from now on.
func (w *world) record(subject string) *tape {
	GinkgoHelper()
	t := &tape{}
	conn := must(w.nats.Connect())
	DeferCleanup(conn.Close)
	_, err := conn.Subscribe(subject, func(m *nats.Msg) {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.messages = append(t.messages, m)
	})
	Expect(err).NotTo(HaveOccurred())
	Expect(conn.Flush()).To(Succeed())
	return t
}

// wants returns the recorded wants, with nil for each tombstone.
func (t *tape) wants() []*v1.Want {
	GinkgoHelper()
	t.mu.Lock()
	defer t.mu.Unlock()
	wants := []*v1.Want{}
	for _, m := range t.messages {
		_, key, err := pipeline.ParseSubject(m.Subject)
		Expect(err).NotTo(HaveOccurred())
		want, err := pipeline.DecodeWant(key, m.Data)
		if !errors.Is(err, pipeline.ErrMalformed) {
			Expect(err).NotTo(HaveOccurred())
			wants = append(wants, want)
		}
	}
	return wants
}

// urls returns the recorded URLs in order, empty for a tombstone.
func (t *tape) urls() []string {
	GinkgoHelper()
	urls := []string{}
	for _, want := range t.wants() {
		urls = append(urls, want.GetUrl())
	}
	return urls
}

// causes returns the recorded causes in order, without tombstones.
func (t *tape) causes() []v1.Cause {
	GinkgoHelper()
	causes := []v1.Cause{}
	for _, want := range t.wants() {
		if want != nil {
			causes = append(causes, want.GetCause())
		}
	}
	return causes
}

// results returns the pending results.
func (w *world) results(ctx context.Context) []*v1.Result {
	GinkgoHelper()
	stream := must(w.js.Stream(ctx, pipeline.Results))
	results := []*v1.Result{}
	state := stream.CachedInfo().State
	for seq := max(state.FirstSeq, 1); seq <= state.LastSeq; seq++ {
		m, err := stream.GetMsg(ctx, seq)
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			continue
		}
		Expect(err).NotTo(HaveOccurred())
		_, key, err := pipeline.ParseSubject(m.Subject)
		Expect(err).NotTo(HaveOccurred())
		result := must(pipeline.DecodeResult(key, m.Data))
		results = append(results, result)
	}
	return results
}

// reports returns the pending requests to reconcile an object; removals are those that may remove
// keys.
func (w *world) reports(ctx context.Context) []*v1.Result {
	GinkgoHelper()
	return slices.DeleteFunc(w.results(ctx), func(r *v1.Result) bool { return r.GetReconcile() == nil })
}

func (w *world) removals(ctx context.Context) []*v1.Result {
	GinkgoHelper()
	return slices.DeleteFunc(w.results(ctx), func(r *v1.Result) bool { return !r.GetReconcile().GetRemove() })
}
