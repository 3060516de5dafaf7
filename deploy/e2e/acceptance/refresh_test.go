package acceptance_test

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/origin"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
)

// pastSharing waits until the outcome of the last GET of a page, which fetches share for one
// second, has expired.
func pastSharing(page *origin.Page) {
	GinkgoHelper()
	hits := page.Hits()
	Consistently(page.Hits).WithTimeout(1100 * time.Millisecond).Should(Equal(hits))
}

var _ = Describe("A refresh of a URL", func() {
	DescribeTable("delivers a changed body, and writes nothing for an unchanged one", func(ctx SpecContext, tagged bool) {
		w := env.World(ctx, world.Options{})
		again := w.Origin.Page("/news").Hits
		if tagged {
			again = w.Origin.Page("/news").Tagged().NotModified
		}
		page, cm := w.Fill(ctx, "news", "morning", world.Annotated("x-kv8s.io/curl-refresh", "1s"))
		Eventually(again).Should(BeNumerically(">=", 2))
		Expect(cm.Writes(ctx)).To(Equal(1))
		page.Says("evening")
		cm.EventuallyHasData(ctx, "mydata", "evening")
		Expect(cm.Writes(ctx)).To(Equal(2))
		cm.Tells(ctx)
	}, Entry("of 200", false), Entry("of 304", true))

	It("stops when the interval is removed, and starts when one is set", func(ctx SpecContext) {
		w := env.World(ctx, world.Options{})
		page, cm := w.Fill(ctx, "ends", "same")
		cm.Annotate(ctx, "x-kv8s.io/curl-refresh", "1s")
		Eventually(page.Hits).Should(BeNumerically(">=", 2))
		cm.Unannotate(ctx, "x-kv8s.io/curl-refresh")
		Eventually(func() float64 { return w.Watcher().Metric(ctx, "curlmethat_watcher_wants_published_total") }).
			Should(Equal(3.0), "wants: without a refresh, with one, and without")
		w.EventuallyQuiet(ctx)
		hits := page.Hits()
		Consistently(page.Hits).WithTimeout(2 * aWhile).Should(Equal(hits))
	})

	It("happens at once when curl-now changes, without sharing an earlier GET", func(ctx SpecContext) {
		w := env.World(ctx, world.Options{})
		page, cm := w.Fill(ctx, "now", "before")
		page.Says("after")
		cm.Annotate(ctx, "x-kv8s.io/curl-now", "2026-01-01")
		cm.EventuallyHasData(ctx, "mydata", "after")
		w.EventuallyQuiet(ctx)
		Expect(page.Hits()).To(Equal(2))
	})

	It("keeps the interval of each key within 5 %", func(ctx SpecContext) {
		w := env.World(ctx, world.Options{})
		slow, fast := w.Origin.Page("/slow").Says("slow"), w.Origin.Page("/fast").Says("fast")
		w.Create(ctx, "intervals", world.Asking("slow="+slow.URL()+" fast="+fast.URL()),
			world.Annotated("x-kv8s.io/curl-refresh", "4s fast=2s"))
		for page, interval := range map[*origin.Page]time.Duration{slow: 4 * time.Second, fast: 2 * time.Second} {
			const atLeast = 20 * time.Second
			Eventually(ctx, func() time.Duration { return meanInterval(page, int(atLeast/interval)) }).WithTimeout(time.Minute).
				Should(BeNumerically("~", interval, interval/20), page.URL())
		}
	})
})

// meanInterval returns the mean interval between at least n refreshes of a page, or 0 before. The
// first GET is no refresh.
func meanInterval(page *origin.Page, n int) time.Duration {
	arrivals := page.Arrivals()
	if len(arrivals) < 2+n {
		return 0
	}
	return arrivals[len(arrivals)-1].Sub(arrivals[1]) / time.Duration(len(arrivals)-2)
}
