package fault_test

import (
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/origin"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
)

var _ = Describe("A host", func() {
	It("that hangs does not delay other hosts", func(ctx SpecContext) {
		w := env.World(ctx, world.Options{Flags: hanging()})
		silent := origin.Start()
		DeferCleanup(silent.Close)
		w.Trust(silent) // closing it ends the requests
		for i := range 100 {
			page := silent.Page(fmt.Sprintf("/%d", i)).Says("never")
			page.Hold()
			w.Create(ctx, fmt.Sprintf("hangs-%d", i), world.Asking("mydata="+page.URL()))
		}
		Eventually(func() float64 { return w.Fetcher().Metric(ctx, "curlmethat_fetcher_parked_total") }).
			WithTimeout(healLimit).Should(BeNumerically(">", 20), "keys parked without a slot")
		for i := range 5 {
			// Another name counts as another host, even on the same machine.
			page := fmt.Sprintf("/quick/%d", i)
			w.Origin.Page(page).Says("quick")
			cm := w.Create(ctx, fmt.Sprintf("quick-%d", i), world.Asking("mydata=http://"+w.Origin.PageByAddress(page)))
			cm.EventuallyHasDataWithin(ctx, apartLimit, "mydata", "quick")
		}
		w.Unfinished()
	})

	It("that cannot be found is retried at growing intervals, with one Event", func(ctx SpecContext) {
		const hosts, retry = 20, time.Second
		w := env.World(ctx, world.Options{Flags: map[string][]string{world.Fetcher: {"--retry-base=" + retry.String()}}})
		began := time.Now()
		for i := range hosts {
			w.Create(ctx, fmt.Sprintf("unknown-%d", i), world.Asking(fmt.Sprintf("mydata=http://host-%d.invalid/", i)))
		}
		Eventually(func() float64 {
			return w.Fetcher().Metric(ctx, "curlmethat_fetcher_gets_total", `result="DNSFailed"`)
		}).Should(BeNumerically(">=", hosts))
		Consistently(func(g Gomega) {
			attempts := w.Fetcher().Metric(ctx, "curlmethat_fetcher_gets_total")
			g.Expect(attempts).To(BeNumerically("<=", hosts*spaced(retry, time.Since(began))), "attempts")
		}).WithTimeout(3 * time.Second).WithPolling(500 * time.Millisecond).Should(Succeed())
		Eventually(func() int { return len(w.Events(ctx)) }).Should(Equal(hosts), "one Event each")
		w.Unfinished()
	})
})

// hanging returns flags with the longest timeouts. With these, a key that had to wait behind a
// hundred hanging ones would wait for minutes.
func hanging() map[string][]string {
	return map[string][]string{world.Fetcher: {"--header-timeout=20s", "--timeout=20s"}}
}

// spaced returns the maximum number of attempts in a time. Each back-off is double the previous
// one, minus up to a fifth.
func spaced(retry, elapsed time.Duration) (attempts int) {
	for next := time.Duration(0); next <= elapsed; attempts++ {
		next += retry * 8 / 10
		retry *= 2
	}
	return attempts
}
