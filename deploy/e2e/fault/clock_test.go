package fault_test

import (
	"net/http"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/origin"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
)

var _ = Describe("A wall clock that is off", func() {
	const (
		refresh = 4 * time.Second
		retry   = 2 * time.Second
		gaps    = 2
	)

	DescribeTable("makes no fetch sooner or later when the clock of a fetcher is off", func(ctx SpecContext, by time.Duration) {
		w := env.World(ctx, world.Options{
			ClocksOff: map[string]time.Duration{world.Fetcher: by},
			Flags:     map[string][]string{world.Fetcher: {"--retry-base=" + retry.String(), "--refresh-jitter=0"}},
		})
		well, failing := w.Origin.Page("/well").Says("well"), w.Origin.Page("/failing").Fails(http.StatusServiceUnavailable)
		w.Create(ctx, "well", world.Asking("mydata="+well.URL()), world.Annotated(refreshKey, refresh.String()))
		w.Create(ctx, "failing", world.Asking("mydata="+failing.URL()))
		for _, page := range []*origin.Page{well, failing} {
			Eventually(page.Hits).WithTimeout(time.Minute).Should(BeNumerically(">", gaps))
		}
		// The clock is late by what a message has waited, on a busy machine for long. Each
		// back-off is spread by a fifth, and doubles.
		Expect(pauses(well)).To(HaveEach(BeNumerically(">=", refresh/2)), "between refreshes")
		Expect(pauses(failing)[0]).To(BeNumerically(">=", retry/2), "before the second attempt")
		Expect(pauses(failing)[1]).To(BeNumerically(">=", retry), "before the third attempt")
		w.Unfinished()
	},
		Entry("and is 15 s behind", -15*time.Second),
		Entry("and is 65 s behind", -65*time.Second),
		Entry("and is 65 s ahead", 65*time.Second),
	)
})

// pauses are the times between the GETs of a page.
func pauses(page *origin.Page) []time.Duration {
	var all []time.Duration
	at := page.Arrivals()
	for i := range at[1:] {
		all = append(all, at[i+1].Sub(at[i]))
	}
	return all
}
