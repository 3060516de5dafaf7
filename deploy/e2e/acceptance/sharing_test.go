package acceptance_test

import (
	"fmt"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

// shared is how long a fetcher shares an answer.
const shared = time.Second

// expectShared checks that no fetcher sent a GET before its last answer had expired. A fetcher
// counts from the start of a GET, which may arrive much later. So the check limits the number of
// arrivals since the first possible start.
func expectShared(began time.Time, arrivals []time.Time, fetchers int) {
	GinkgoHelper()
	for i, at := range arrivals {
		Expect(i).To(BeNumerically("<", fetchers*(1+int(at.Sub(began)/shared))), "GETs before the one that arrived after %s",
			at.Sub(began))
	}
}

var _ = Describe("A URL used by 1,000 ConfigMaps", func() {
	It("is fetched once a second per fetcher at most, and written only when it changes", func(ctx SpecContext) {
		const n, fetchers = 1000, 3
		w := env.World(ctx, world.Options{Without: []string{world.Watcher}})
		page := w.Origin.Page("/shared").Tagged().Says("for all")
		objects := make([]*world.ConfigMap, n)
		var creating sync.WaitGroup
		for worker := range 8 {
			creating.Go(func() {
				defer GinkgoRecover()
				for i := worker; i < n; i += 8 {
					objects[i] = w.Create(ctx, fmt.Sprintf("cm-%03d", i),
						world.Asking("mydata="+page.URL()), world.Annotated("x-kv8s.io/curl-refresh", "20s"))
				}
			})
		}
		creating.Wait()
		all := []*world.Service{w.Fetcher()}
		for range fetchers - 1 {
			all = append(all, w.Launch(ctx, world.Fetcher))
		}
		began := time.Now()
		w.Launch(ctx, world.Watcher).EventuallyReady(ctx)
		for _, cm := range objects {
			cm.EventuallyHasDataWithin(ctx, 2*time.Minute, "mydata", "for all")
		}
		expectShared(began, page.Arrivals(), fetchers)
		results := w.LastResult(ctx)

		// Each key is refreshed within one and a half intervals.
		Eventually(ctx, func() int { return w.Stored(ctx, pipeline.Requests, "curl.due.>") }).
			WithTimeout(2 * time.Minute).WithPolling(time.Second).Should(Equal(n))
		Eventually(ctx, func() (refreshed float64) {
			for _, f := range all {
				refreshed += f.Metric(ctx, "curlmethat_fetcher_requests_total", `outcome="unmodified"`)
			}
			return refreshed
		}).WithTimeout(2*time.Minute).WithPolling(200*time.Millisecond).Should(BeNumerically(">=", n), "refreshes")
		Expect(page.NotModified()).To(BeNumerically("<=", n))
		Expect(page.NotModified()).To(BeNumerically(">=", 1))
		Expect(w.LastResult(ctx)).To(Equal(results), "results of refreshes that brought nothing new")
		w.EventuallyCaughtUp(ctx)
		for _, cm := range objects {
			Expect(w.History.Writes(cm.Name)).To(Equal(1), "writes to %s", cm.Name)
		}
		w.Unfinished() // on a busy machine, the next refreshes have started
	})
})
