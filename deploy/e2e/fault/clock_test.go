package fault_test

import (
	"net/http"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/origin"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
)

var _ = Describe("The wall clock of a fetcher", func() {
	const (
		refresh = 4 * time.Second
		retry   = 2 * time.Second
		gaps    = 2
	)

	DescribeTable("does not influence the times of fetches", func(ctx SpecContext, by time.Duration) {
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
		// The clock includes the time that a message waited, which is long on a busy machine. Each
		// back-off is doubled and varies by a fifth.
		Expect(pauses(well)).To(HaveEach(BeNumerically(">=", refresh/2)), "between refreshes")
		Expect(pauses(failing)[0]).To(BeNumerically(">=", retry/2), "before the second attempt")
		Expect(pauses(failing)[1]).To(BeNumerically(">=", retry), "before the third attempt")
		w.Unfinished()
	},
		Entry("when 15 s behind", -15*time.Second),
		Entry("when 65 s behind", -65*time.Second),
		Entry("when 65 s ahead", 65*time.Second),
	)
})

// pauses returns the times between the GETs of a page.
func pauses(page *origin.Page) []time.Duration {
	var all []time.Duration
	at := page.Arrivals()
	for i := range at[1:] {
		all = append(all, at[i+1].Sub(at[i]))
	}
	return all
}
