package watcher_test

import (
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"

	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	"github.com/kv8s/curl-me-that/proto/annotation"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/status"
)

var _ = Describe("A watcher whose keys all lost their annotation", func() {
	const keys = 60

	var w *world

	// The keys were asked for by an annotation that none of the objects has.
	const lost = "example.com/curl-me-that"
	other := func(o *options) { o.config.Selection.Grammar.Keys = []string{lost} }

	BeforeEach(func(ctx SpecContext) {
		w = newWorld(ctx)
		held := status.Status{Keys: map[string]status.Entry{"k": {
			URL: "https://example.com", SHA256: digest("body"), Size: 4, FetchedAt: time.Now(),
			Fence: status.Fence{Epoch: 1, Seq: 1}, Annotation: lost,
		}}}
		w.createAll(ctx, keys, func(n int) string { return fmt.Sprint("cm-", n) }, "k=example.com")
		for n := range keys {
			w.patch(ctx, annotation.FieldManager, fmt.Sprint("cm-", n), object{
				"data": object{"k": "body"}, "metadata": object{"annotations": object{annotation.StatusKey: held.String()}},
			})
		}
	})

	It("removes no key, even after a restart, and another one that is asked for them fetches them", func(ctx SpecContext) {
		for range 2 {
			wrong := w.watch(other).awaitReady()
			Eventually(wrong.log).Should(gbytes.Say("refusing to remove so many keys of a namespace at once"))
			Eventually(func() (float64, error) {
				return suitetest.MetricValue(wrong.metrics, "curlmethat_watcher_held_back_removals")
			}).Should(BeEquivalentTo(keys))
			wrong.stop()
		}
		right := w.watch().awaitReady()
		Eventually(w.sequence(ctx, pipeline.Requests)).Should(BeEquivalentTo(keys))
		Expect(suitetest.MetricValue(right.metrics, "curlmethat_watcher_held_back_removals")).To(BeZero())
		Expect(w.sequence(ctx, pipeline.Results)()).To(BeZero())
	})

	It("removes all keys with --max-removals=0", func(ctx SpecContext) {
		w.watch(other, func(o *options) { o.config.MaxRemovals.Keys = 0 })
		Eventually(w.sequence(ctx, pipeline.Results)).Should(BeEquivalentTo(keys))
	})
})
