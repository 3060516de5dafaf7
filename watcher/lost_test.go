package watcher_test

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kv8s/curl-me-that/proto/annotation"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/status"
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

	It("is requested again if the result of a refresh was purged", func(ctx SpecContext) {
		w.create(ctx, "cm", "k=example.com", hourly)
		w.watch(audited).awaitReady()
		w.answer(ctx, key, "old")
		w.fetches(ctx, key, "new")
		w.purgeResults(ctx)
		askedAgain(ctx)
	})

	It("is requested again if the API server rejected the writer's patch", func(ctx SpecContext) {
		w.create(ctx, "cm", "k=example.com", hourly)
		w.watch(audited).awaitReady()
		Eventually(w.want(ctx, key)).ShouldNot(BeNil())
		w.refreshes(ctx, key, "body", time.Hour)
		w.report(ctx, key, func(e *status.Entry) { e.Error = "BodyTooLarge" }, object{})
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

	It("is requested again if the object was replaced without our status while no watcher ran", func(ctx SpecContext) {
		w.create(ctx, "cm", "k=example.com", hourly)
		first := w.watch().awaitReady()
		w.answer(ctx, key, "body")
		w.refreshes(ctx, key, "body", time.Hour)
		first.stop()
		replacement := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
			Name: "cm", Namespace: w.namespace, Annotations: map[string]string{annotation.DefaultKey: "k=example.com"},
		}}
		hourly(replacement)
		_, err := kube.CoreV1().ConfigMaps(w.namespace).Update(ctx, replacement, metav1.UpdateOptions{FieldManager: somebody})
		Expect(err).NotTo(HaveOccurred())
		w.watch(audited).awaitReady()
		askedAgain(ctx)
	})

	It("is requested again if the object was restored from a backup with an older body", func(ctx SpecContext) {
		w.create(ctx, "cm", "k=example.com", hourly)
		w.watch(audited).awaitReady()
		w.answer(ctx, key, "old")
		backup := must(kube.CoreV1().ConfigMaps(w.namespace).Get(ctx, "cm", metav1.GetOptions{}))
		w.answer(ctx, key, "new")
		w.refreshes(ctx, key, "new", time.Hour)
		w.patch(ctx, annotation.FieldManager, "cm",
			object{"data": backup.Data, "metadata": object{"annotations": backup.Annotations}})
		askedAgain(ctx)
	})

	It("gets a new timer, without a fetch, if the server lost it when it fired", func(ctx SpecContext) {
		w.create(ctx, "cm", "k=example.com", hourly)
		w.watch(audited, func(o *options) { o.config.ManageStreams = "create" }).awaitReady()
		w.answer(ctx, key, "body")
		w.refreshes(ctx, key, "body", 3*time.Second)

		By("rejecting the message that the server publishes when the timer fires")
		requests := must(w.js.Stream(ctx, pipeline.Requests))
		limit := func(bytes int32) {
			GinkgoHelper()
			config := requests.CachedInfo().Config
			config.MaxMsgSize = bytes
			must(w.js.UpdateStream(ctx, config))
		}
		limit(64)
		timer := must(w.pipeline.LastMessage(ctx, pipeline.Requests, key.Timer()))
		at := must(pipeline.FiresAt(timer))
		Eventually(time.Now).Should(BeTemporally(">", at.Add(500*time.Millisecond)))
		limit(pipeline.MaxRequestBytes)
		_, err := w.pipeline.LastMessage(ctx, pipeline.Requests, key.Due())
		Expect(err).To(MatchError(pipeline.ErrNoMessage))

		Eventually(cause(ctx)).Should(Equal(v1.Cause_CAUSE_AUDIT))
		Expect(w.want(ctx, key)().GetCached().GetSha256()).To(Equal(digest("body")))
		_, err = w.pipeline.LastMessage(ctx, pipeline.Requests, key.Timer())
		Expect(err).To(MatchError(pipeline.ErrNoMessage), "the want has cancelled it")
	})

	It("is requested again if its body was lost before a restart and the clock is 10 min behind", func(ctx SpecContext) {
		w.create(ctx, "cm", "k=example.com", hourly)
		first := w.watch().awaitReady()
		Eventually(w.want(ctx, key)).ShouldNot(BeNil())
		w.fetches(ctx, key, "body")
		first.stop()
		w.purgeResults(ctx)
		w.watch(audited, ahead(-10*time.Minute)).awaitReady()
		askedAgain(ctx)
	})

	It("is not requested again if only the clock is 10 min ahead", func(ctx SpecContext) {
		w.create(ctx, "cm", "k=example.com", hourly)
		w.watch(audited, ahead(10*time.Minute)).awaitReady()
		w.answer(ctx, key, "body")
		w.refreshes(ctx, key, "body", 5*time.Minute)
		Consistently(cause(ctx)).WithTimeout(time.Second).Should(Equal(v1.Cause_CAUSE_NEW))
	})
})
