package watcher_test

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"github.com/kv8s/curl-me-that/proto/annotation"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

// audited shortens the intervals: a want may take 100 ms, and a timer is lost after 200 ms.
func audited(o *options) { o.pace.Audit, o.pace.Check = 400*time.Millisecond, 100*time.Millisecond }

// ahead makes the machine's clock wrong.
func ahead(by time.Duration) func(*options) { return func(o *options) { o.pace.Ahead = by } }

func hourly(cm *corev1.ConfigMap) { cm.Annotations["x-kv8s.io/"+annotation.RefreshName] = "1h" }

// refreshes acts like a fetcher after a response: it sets the refresh timer and acknowledges.
func (w *world) refreshes(ctx context.Context, key pipeline.Key, body string, in time.Duration) {
	GinkgoHelper()
	w.schedules(ctx, key, body, in)
	w.fetch(ctx)
}

// schedules sets the refresh timer of a key, and returns its want.
func (w *world) schedules(ctx context.Context, key pipeline.Key, body string, in time.Duration) (want *v1.Want,
	sequence uint64,
) {
	GinkgoHelper()
	want, sequence, err := w.pipeline.LastWant(ctx, key)
	Expect(err).NotTo(HaveOccurred())
	Expect(w.pipeline.SetTimer(ctx, &v1.Due{
		Want: want, WantSequence: sequence, Cause: v1.Cause_CAUSE_REFRESH, Cached: &v1.Cached{Sha256: digest(body)},
	}, time.Now().Add(in))).Error().NotTo(HaveOccurred())
	return want, sequence
}

// fetches acts like a fetcher with a new body, which it publishes for the writer.
func (w *world) fetches(ctx context.Context, key pipeline.Key, body string) {
	GinkgoHelper()
	want, sequence := w.schedules(ctx, key, body, time.Hour)
	Expect(w.pipeline.PublishResult(ctx, &v1.Result{Want: want, Sequence: sequence, Outcome: &v1.Result_Content{
		Content: &v1.Content{Body: []byte(body), Sha256: digest(body)},
	}})).To(Succeed())
	w.fetch(ctx)
}

func (w *world) purgeResults(ctx context.Context) {
	GinkgoHelper()
	results := must(w.js.Stream(ctx, pipeline.Results))
	Expect(results.Purge(ctx)).To(Succeed())
}

var _ = Describe("A key with a refresh in an hour", func() {
	var (
		w   *world
		key pipeline.Key
	)

	BeforeEach(func(ctx SpecContext) {
		w = newWorld(ctx)
		key = w.key("cm", "k")
	})

	cause := func(ctx context.Context) func() v1.Cause {
		return func() v1.Cause { return w.want(ctx, key)().GetCause() }
	}
	// askedAgain waits for a want that triggers a fetch.
	askedAgain := func(ctx context.Context) {
		GinkgoHelper()
		Eventually(cause(ctx)).Should(Equal(v1.Cause_CAUSE_AUDIT))
		Expect(w.want(ctx, key)().GetCached()).To(BeNil(), "a fetch has to follow")
	}

	It("is requested again if its result was purged, and not before", func(ctx SpecContext) {
		w.create(ctx, "cm", "k=example.com", hourly)
		w.watch(audited).awaitReady()
		Eventually(w.want(ctx, key)).ShouldNot(BeNil())
		w.fetches(ctx, key, "body")
		Consistently(cause(ctx)).WithTimeout(time.Second).Should(Equal(v1.Cause_CAUSE_NEW), "its result waits for the writer")
		w.purgeResults(ctx)
		askedAgain(ctx)
	})

	It("is requested again if two edits made the writer drop the body", func(ctx SpecContext) {
		w.create(ctx, "cm", "k=example.com/a", hourly)
		tape := w.record("curl.want.>")
		w.watch(audited, func(o *options) { o.config.Coalesce = 5 * time.Second }).awaitReady()
		Eventually(w.want(ctx, key)).ShouldNot(BeNil())
		w.ask(ctx, "cm", "k=example.com/b")
		w.refreshes(ctx, key, "body of a", time.Hour) // that the writer drops, as it reads b
		w.ask(ctx, "cm", "k=example.com/a")
		askedAgain(ctx)
		Expect(tape.urls()).To(HaveEach("https://example.com/a"), "the watcher has seen one version only")
	})

	It("is not requested again if only the clock is 10 min ahead", func(ctx SpecContext) {
		w.create(ctx, "cm", "k=example.com", hourly)
		w.watch(audited, ahead(10*time.Minute)).awaitReady()
		w.answer(ctx, key, "body")
		w.refreshes(ctx, key, "body", 5*time.Minute)
		Consistently(cause(ctx)).WithTimeout(time.Second).Should(Equal(v1.Cause_CAUSE_NEW))
	})
})
