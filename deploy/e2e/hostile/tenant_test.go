package hostile_test

import (
	"context"
	"fmt"
	"slices"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/hostile"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
)

const (
	// control and exposure are how long the other tenant creates keys, one after the other, before
	// and during an attack.
	control, exposure = time.Second, 5 * time.Second
	// grace is how much longer the other tenant may wait than without an attack: on a quiet machine
	// it is less than a second, beside other suites it is what these take.
	grace = 6 * time.Second
	// patience is how long a sample is waited for before the spec fails.
	patience = 90 * time.Second
	// memoryLimit is the limit of the chart for watcher and writer; the fetcher's is no lower.
	memoryLimit = 256 << 20
	// goMemoryLimit is the part of it that the chart gives to the Go runtime.
	goMemoryLimit = "GOMEMLIMIT=204MiB"
)

var _ = Describe("Another tenant's keys are filled in time", Ordered, ContinueOnFailure, func() {
	var (
		w     *world.World
		a     *hostile.Tenant
		other *world.World
		named int
	)
	BeforeAll(func(ctx SpecContext) {
		w = env.World(ctx, world.Options{
			Tenants: 1, Env: []string{goMemoryLimit},
			Flags: map[string][]string{
				world.Watcher: {"--audit-interval=8s", "--min-refresh=" + hostile.Refresh},
				world.Fetcher: {"--min-refresh=" + hostile.Refresh},
			},
		})
		w.Unfinished()
		a, other = hostile.New(w, 1), w.Tenants[0]
	})
	// fill creates keys, one after the other, and returns the 90th percentile of the times until they
	// are filled, and the longest.
	fill := func(ctx context.Context, window time.Duration) (p90, longest time.Duration) {
		GinkgoHelper()
		var took []time.Duration
		for first := time.Now(); len(took) == 0 || time.Since(first) < window; {
			named++
			name := fmt.Sprintf("ordinary-%d", named)
			page := other.Origin.Page("/" + name).Says(name)
			began := time.Now()
			other.Create(ctx, name, world.Asking("mydata="+page.URL())).EventuallyHasDataWithin(ctx, patience, "mydata", name)
			took = append(took, time.Since(began))
		}
		slices.Sort(took)
		return took[len(took)*9/10], took[len(took)-1]
	}
	for _, way := range hostile.Attacks() {
		It("while a tenant "+way.Name, func(ctx SpecContext) {
			DeferCleanup(func(ctx SpecContext) { a.Clear(ctx) })
			before, _ := fill(ctx, control)
			way.Run(ctx, a)
			during, longest := fill(ctx, exposure)
			AddReportEntry("p90 before and during, longest", fmt.Sprintf("%v, %v, %v", before, during, longest))
			Expect(during).To(BeNumerically("<=", max(2*before, before+grace)))
		}, SpecTimeout(5*time.Minute))
	}
	It("without a failed audit, and within the memory limits of the chart", func(ctx SpecContext) {
		Expect(w.Watcher().Log.Matching("audit could not read")).To(BeEmpty())
		for _, s := range []*world.Service{w.Watcher(), w.Fetcher(), w.Writer()} {
			Expect(s.Metric(ctx, "process_resident_memory_bytes")).To(BeNumerically("<", memoryLimit), s.Name)
			Expect(s.Running()).To(BeTrue(), s.Name)
		}
	})
})
