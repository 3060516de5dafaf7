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
// old. A fetcher counts from when it begins a GET, which may arrive much later,
// so what can be said of arrivals is how many there may be since none could
// have begun.
func expectShared(began time.Time, arrivals []time.Time, fetchers int) {
	GinkgoHelper()
	for i, at := range arrivals {
		Expect(i).To(BeNumerically("<", fetchers*(1+int(at.Sub(began)/shared))), "GETs before the one that arrived after %s", at.Sub(began))
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
						world.Asking("mydata="+page.URL()), world.Annotated("x-kv8s.io/curl-refresh", "20s"))
				}
			})
		}
		creating.Wait()
		for range fetchers - 1 {
			w.Launch(ctx, world.Fetcher)
		}
		began := time.Now()
		w.Launch(ctx, world.Watcher).EventuallyReady(ctx)
		for _, cm := range objects {
			cm.EventuallyHasDataWithin(ctx, 2*time.Minute, "mydata", "for all")
		}
		expectShared(began, page.Arrivals(), fetchers)
		results := w.LastResult(ctx)

		// Each has a refresh within one and a half intervals.
		Eventually(ctx, func() int { return w.Stored(ctx, pipeline.Requests, "curl.due.>") }).
			WithTimeout(2 * time.Minute).Should(Equal(n))
		w.EventuallyQuiet(ctx)
		Expect(page.NotModified()).To(BeNumerically("<=", n))
		Expect(page.NotModified()).To(BeNumerically(">=", 1))
		Expect(w.LastResult(ctx)).To(Equal(results), "results of refreshes that brought nothing new")
		for _, cm := range objects {
			Expect(cm.Writes(ctx)).To(Equal(1), "writes to %s", cm.Name)
		}
	})
})
