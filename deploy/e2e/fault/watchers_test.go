package fault_test

import (
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

var _ = Describe("Two watchers", func() {
	It("publish each want once, and one of them is enough", func(ctx SpecContext) {
		w := env.World(ctx, world.Options{Flags: neverParking()})
		second := w.Launch(ctx, world.Watcher)
		second.EventuallyReady(ctx)
		load := w.Begin(ctx, 100)
		load.EventuallyEnds(ctx, time.Minute)
		Expect(w.Published(ctx)).To(Equal(100), "messages in the stream")
		Expect(load.MostHits()).To(Equal(1), "GETs of one page")

		Expect(w.Watcher().Kill()).To(Succeed())
		page := w.Origin.Page("/other").Says("by the other one")
		load.ConfigMaps[0].Ask(ctx, "mydata="+page.URL())
		load.ConfigMaps[0].EventuallyHasData(ctx, "mydata", "by the other one")
		load.ConfigMaps[1].Put(ctx, "mydata", "changed by hand")
		load.ConfigMaps[1].EventuallyHasData(ctx, "mydata", "body 1")
	})

	It("restore lost keys with their audits and fetch nothing else", func(ctx SpecContext) {
		w := env.World(ctx, world.Audited(world.Options{Without: []string{world.Writer}}))
		w.Launch(ctx, world.Watcher).EventuallyReady(ctx)
		const keys = 20
		for i, page := range w.Origin.Pages(keys) {
			w.Create(ctx, fmt.Sprintf("kept-%d", i), world.Asking("mydata="+page.URL()), world.Annotated(refreshKey, "5m"))
		}
		Eventually(func() int { return w.Stored(ctx, pipeline.Results, "curl.result.content.>") }).Should(Equal(keys))
		w.Purge(ctx, pipeline.Results)
		w.Launch(ctx, world.Writer).EventuallyReady(ctx)
		for i := range keys {
			name := fmt.Sprintf("kept-%d", i)
			Eventually(func() bool { return w.History.Writes(name) > 0 }).WithTimeout(healLimit).
				Should(BeTrue(), "%s is filled", name)
		}
		// On a busy machine, a watcher sees the writes late and asks once more.
		since, published, hits := time.Now(), 0, 0
		Eventually(ctx, func() time.Duration {
			if now := w.Published(ctx); now != published || w.Origin.Hits() != hits {
				since, published, hits = time.Now(), now, w.Origin.Hits()
			}
			return time.Since(since)
		}).WithTimeout(time.Minute).Should(BeNumerically(">", 3*aWhile), "several audits without a message or a GET")
	})

	It("hand over when the leader is killed and when it stops", func(ctx SpecContext) {
		w := env.World(ctx, world.Options{Without: []string{world.Watcher}, Flags: neverParking()})
		election := []string{
			"--leader-elect", "--leader-elect-namespace=" + w.Namespace, "--leader-elect-lease-duration=3s",
			"--leader-elect-renew-deadline=2s", "--leader-elect-retry-period=300ms",
		}
		leader := w.Launch(ctx, world.Watcher, election...)
		leader.EventuallyReady(ctx)
		Eventually(func() []string { return leader.Log.Matching(`"leading"`) }).Should(HaveLen(1))
		standby := w.Launch(ctx, world.Watcher, election...)
		standby.EventuallyReady(ctx)
		load := w.Begin(ctx, 40)
		load.EventuallyEnds(ctx, time.Minute)
		Expect(standby.Metric(ctx, "curlmethat_watcher_wants_published_total")).To(BeZero())

		Expect(leader.Kill()).To(Succeed())
		page := w.Origin.Page("/after").Says("after the kill")
		w.Create(ctx, "after", world.Asking("mydata="+page.URL())).EventuallyHasData(ctx, "mydata", "after the kill")
		Expect(standby.Log.Matching(`"leading"`)).To(HaveLen(1))

		leader.Restart(ctx)
		standby.ShouldStop(ctx)
		page = w.Origin.Page("/end").Says("after the end")
		w.Create(ctx, "end", world.Asking("mydata="+page.URL())).EventuallyHasData(ctx, "mydata", "after the end")
		w.EventuallyQuiet(ctx)
		Expect(w.Published(ctx)).To(Equal(42), "messages in the stream")
		Expect(load.MostHits()).To(Equal(1), "GETs of one page")
	})
})

// neverParking returns flags that give each key a slot, so that the fetcher publishes nothing to
// the stream of requests.
func neverParking() map[string][]string {
	return map[string][]string{world.Fetcher: {"--concurrency=256", "--per-host=128"}}
}
