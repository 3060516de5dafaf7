package fault_test

import (
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/origin"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
)

var _ = Describe("The servers that are fetched from", func() {
	It("may hang: others are served as if nothing was", func(ctx SpecContext) {
		w := env.World(ctx, world.Options{})
		hanging := origin.Start()
		DeferCleanup(hanging.Close)
		w.Trust(hanging) // its end lets them go
		for i := range 100 {
			page := hanging.Page(fmt.Sprintf("/%d", i)).Says("never")
			page.Hold()
			w.Create(ctx, fmt.Sprintf("hangs-%d", i), world.Asking("mydata="+page.URL()))
		}
		Eventually(func() float64 { return w.Fetcher().Metric(ctx, "curlmethat_fetcher_parked_total") }).
			WithTimeout(20*time.Second).Should(BeNumerically(">", 20), "the rest waits without a slot")
		for i := range 5 {
			// Another name is another host, though it is the same machine.
			page := fmt.Sprintf("/quick/%d", i)
			w.Origin.Page(page).Says("quick")
			cm := w.Create(ctx, fmt.Sprintf("quick-%d", i), world.Asking("mydata=http://"+w.Origin.PageByAddress(page)))
			cm.EventuallyHasDataWithin(ctx, 2*time.Second, "mydata", "quick")
		}
		w.Unfinished()
	})

	It("may not be found: attempts are spaced, and told once", func(ctx SpecContext) {
		w := env.World(ctx, world.Options{Flags: map[string][]string{world.Fetcher: {"--retry-base=1s"}}})
		for i := range 20 {
			w.Create(ctx, fmt.Sprintf("unknown-%d", i), world.Asking(fmt.Sprintf("mydata=http://host-%d.invalid/", i)))
		}
		Eventually(func() float64 {
			return w.Fetcher().Metric(ctx, "curlmethat_fetcher_gets_total", `result="DNSFailed"`)
		}).Should(BeNumerically(">=", 20))
		Consistently(func() float64 { return w.Fetcher().Metric(ctx, "curlmethat_fetcher_gets_total") }).
			WithTimeout(3*time.Second).WithPolling(500*time.Millisecond).Should(BeNumerically("<=", 80), "attempts")
		Eventually(func() int { return len(w.Events(ctx)) }).Should(Equal(20), "one Event each")
		w.Unfinished()
	})
})
