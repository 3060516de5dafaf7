package cluster_test

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/installation"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/release"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
)

// recovery is how long interrupted work may take: after AckWait, 30 s, it is redelivered to another
// pod.
const recovery = 3 * time.Minute

// livesThroughChange adds specs that scale and kill pods under load.
func livesThroughChange() {
	It("keeps working while fetchers are scaled from 1 to 4, to none and to 2", func(ctx SpecContext) {
		fetchers := func(n int) {
			GinkgoHelper()
			chart.Scale(ctx, release.Fetcher, n)
			chart.EventuallyRuns(ctx, release.Fetcher, n)
		}
		fetchers(0)
		queued := load(ctx, "queued", 60)
		traffic := visitor.Traffic(ctx, "scaled")
		Consistently(ctx, queued.Filled).Should(BeZero(), "nobody fetches")

		fetchers(1)
		fetchers(4)
		Eventually(ctx, traffic.Done).Should(BeNumerically(">", 0))
		chart.Scale(ctx, release.Fetcher, 0)
		between := load(ctx, "between", 30)
		chart.EventuallyRuns(ctx, release.Fetcher, 0)
		waiting := load(ctx, "waiting", 20)
		Consistently(ctx, waiting.Filled).Should(BeZero(), "nobody fetches")

		fetchers(2)
		queued.ShouldEnd(ctx, recovery)
		between.ShouldEnd(ctx, recovery)
		waiting.ShouldEnd(ctx, recovery)
		traffic.ShouldEnd(ctx)
	})

	DescribeTable("loses nothing when each pod is killed", func(ctx SpecContext, component string) {
		before := load(ctx, "before-"+component, 10)
		before.ShouldEnd(ctx, recovery)
		traffic := visitor.Traffic(ctx, "killed-"+component)
		pods := chart.Pods(ctx, component)
		for _, pod := range pods {
			busy := traffic.Done()
			Eventually(ctx, traffic.Done).Should(BeNumerically(">", busy), "the load makes progress")
			chart.Kill(ctx, pod)
			chart.EventuallyReplaced(ctx, component, len(pods), pod)
		}
		after := load(ctx, "after-"+component, 10)
		after.ShouldEnd(ctx, recovery)
		traffic.ShouldEnd(ctx)
		before.ShouldEnd(ctx, recovery)
		// Not even if NATS lost its data with its pod.
		for _, page := range before.Pages {
			Expect(page.Hits(ctx)).To(Equal(1), "held keys are not fetched again")
		}
	},
		Entry(nil, release.Watcher),
		Entry(nil, release.Fetcher),
		Entry(nil, release.Writer),
		Entry(nil, release.NATS),
	)

	It("lets a terminating fetcher finish its work", func(ctx SpecContext) {
		page := visitor.Page("/drained").Says(ctx, "in time")
		page.Hold(ctx)
		cm := visitor.Create(ctx, "drained", world.Asking("mydata="+page.URL()))
		Eventually(ctx, func() int { return page.Waiting(ctx) }).Should(Equal(1))
		pods := chart.Pods(ctx, release.Fetcher)
		for _, pod := range pods {
			chart.Stop(ctx, pod)
		}
		page.Release(ctx)
		cm.EventuallyHasDataWithin(ctx, installation.Patience, "mydata", "in time")
		for _, pod := range pods {
			chart.EventuallyReplaced(ctx, release.Fetcher, len(pods), pod)
		}
		Expect(page.Hits(ctx)).To(Equal(1), "nobody had to fetch it again after AckWait")
		Expect(cm.Writes(ctx)).To(Equal(1))
	})
}
