package watcher_test

import (
	"context"
	"errors"
	"slices"

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

// receive acknowledges all messages from now on, like fetchers.
func (w *world) receive(ctx context.Context) {
	GinkgoHelper()
	consumer := must(w.js.Consumer(ctx, pipeline.Requests, pipeline.FetcherConsumer))
	consuming := must(consumer.Consume(func(m jetstream.Msg) { _ = m.Ack() }))
	DeferCleanup(consuming.Stop)
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

// reports returns the pending reconcile requests, and removals only requests that may remove keys.
func (w *world) reports(ctx context.Context) []*v1.Result {
	GinkgoHelper()
	return slices.DeleteFunc(w.results(ctx), func(r *v1.Result) bool { return r.GetReconcile() == nil })
}

func (w *world) removals(ctx context.Context) []*v1.Result {
	GinkgoHelper()
	return slices.DeleteFunc(w.results(ctx), func(r *v1.Result) bool { return !r.GetReconcile().GetRemove() })
}
