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

// shared is how long a fetcher gives the same answer to others.
const shared = time.Second

// expectShared expects that no fetcher has asked again before its last answer was
// old: among one request more than there are fetchers two are of the same one.
// How many there are in all depends on how long the fill took.
func expectShared(arrivals []time.Time, fetchers int) {
	GinkgoHelper()
	for i := fetchers; i < len(arrivals); i++ {
		Expect(arrivals[i].Sub(arrivals[i-fetchers])).To(BeNumerically(">=", shared), "time from GET %d to GET %d", i-fetchers, i)
	}
}

var _ = Describe("A URL that 1,000 ConfigMaps ask for", func() {
	It("is fetched once a second by each of three fetchers at most, and costs no write while it stays the same", func(ctx SpecContext) {
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
						world.Asking("mydata="+page.URL()), world.Annotated("x-kv8s.io/curl-refresh", "10s"))
				}
			})
		}
		creating.Wait()
		for range fetchers - 1 {
			w.Launch(ctx, world.Fetcher)
		}
		w.Launch(ctx, world.Watcher).EventuallyReady(ctx)
		for _, cm := range objects {
			cm.EventuallyHasDataWithin(ctx, 30*time.Second, "mydata", "for all")
		}
		expectShared(page.Arrivals(), fetchers)
		results := w.LastResult(ctx)

		// Each has a refresh within one and a half intervals.
		Eventually(ctx, func() int { return w.Stored(ctx, pipeline.Requests, "curl.due.>") }).
			WithTimeout(30 * time.Second).Should(Equal(n))
		w.EventuallyQuiet(ctx)
		Expect(page.NotModified()).To(BeNumerically("<=", n))
		Expect(page.NotModified()).To(BeNumerically(">=", 1))
		Expect(w.LastResult(ctx)).To(Equal(results), "results of refreshes that brought nothing new")
		for _, cm := range objects {
			Expect(cm.Writes(ctx)).To(Equal(1), "writes to %s", cm.Name)
		}
	})
})
