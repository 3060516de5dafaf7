package fault_test

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
)

var _ = Describe("Keys waiting for a slot of their host", func() {
	It("are parked at most once per GET while slots are in use", func(ctx SpecContext) {
		const (
			keys    = 200
			latency = 300 * time.Millisecond
			// slots is the maximum number of slots for one namespace and host in one fetcher.
			slots               = 7
			mostParks, mostTime = keys, 3 * keys * latency / slots / 2
		)
		w := env.World(ctx, world.Options{})
		first := w.Origin.Page("/first").Says("first").Takes(latency)
		w.Create(ctx, "first", world.Asking("mydata="+first.URL())).EventuallyHasData(ctx, "mydata", "first")
		for _, page := range w.Origin.Pages(keys) {
			page.Takes(latency)
		}
		load := w.Begin(ctx, keys)
		load.EventuallyCreated()
		created := time.Now()
		load.EventuallyEnds(ctx, 3*mostTime)
		last := created
		for _, page := range load.Pages {
			if at := page.Arrivals()[0]; at.After(last) {
				last = at
			}
		}
		Expect(last.Sub(created)).To(BeNumerically("<", mostTime), "time from when all are wanted until the last GET")
		Expect(w.Fetcher().Metric(ctx, "curlmethat_fetcher_parked_total")).To(BeNumerically("<=", mostParks), "parks")
	})
})
