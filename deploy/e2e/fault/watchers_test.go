package fault_test

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
)

var _ = Describe("Two watchers", func() {
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
