package watcher_test

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"

	"github.com/kv8s/curl-me-that/proto/pipeline"
)

var _ = Describe("A watcher", func() {
	It("publishes nothing at its start if the stream is up to date", func(ctx SpecContext) {
		first := w.watch().awaitReady()
		w.satisfied(ctx, "satisfied", "example.com/a")
		w.wanted(ctx, "waiting", "example.com/b")
		first.Stop()
		before := w.sequence()
		second := w.watch().awaitReady()
		Eventually(second.Log).Should(gbytes.Say("publishing wants"))
		Consistently(w.sequence).Should(Equal(before))
	})

	It("refills a deleted stream", func(ctx SpecContext) {
		w.watch(func(o *options) { o.pace.Check = 100 * time.Millisecond }).awaitReady()
		settled := w.satisfied(ctx, "settled", "example.com/a")
		waiting := w.wanted(ctx, "waiting", "example.com/b")
		Expect(w.js.DeleteStream(ctx, pipeline.Requests)).To(Succeed())
		Eventually(w.url(ctx, settled)).Should(Equal("https://example.com/a"))
		Eventually(w.url(ctx, waiting)).Should(Equal("https://example.com/b"))
		Expect(w.want(ctx, settled)().GetCached().GetSha256()).To(Equal(pipeline.Digest("body of example.com/a")))
		Expect(w.want(ctx, waiting)().GetCached()).To(BeNil())
		Expect(w.notes(ctx, "Drifted")).To(BeEmpty())
	})

	It("recreates a deleted consumer", func(ctx SpecContext) {
		w.watch(func(o *options) { o.pace.Check = 100 * time.Millisecond }).awaitReady()
		for stream, consumer := range map[string]string{
			pipeline.Requests: pipeline.FetcherConsumer, pipeline.Results: pipeline.WriterConsumer,
		} {
			Expect(w.js.DeleteConsumer(ctx, stream, consumer)).To(Succeed())
			Eventually(func() error {
				_, err := w.js.Consumer(ctx, stream, consumer)
				return err
			}).Should(Succeed())
		}
	})
})

// audited shortens the intervals: the grace period is 100 ms, and a timer is overdue after 200 ms.
func audited(o *options) { o.pace.Audit, o.pace.Check = 400*time.Millisecond, 100*time.Millisecond }
