// Package hostile lets one tenant abuse ConfigMaps in many ways, and measures how long another tenant waits
// meanwhile.
package hostile_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/hostile"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
)

func TestHostile(t *testing.T) { world.Run(t, "Hostile") }

var env *world.Environment

var _ = BeforeSuite(func() { env = world.Open() })

const (
	// exposure is how long keys are created during an attack, and samples their minimum number. The first key
	// may wait behind all keys of the attack in the stream.
	exposure, samples = 5 * time.Second, 20
	// grace is how much longer the other tenant may wait than a control tenant, who has a separate installation
	// on the same machine.
	grace = 2 * time.Second
	// overload is the same for a single measurement on an overloaded machine: with 14 busy programs on each
	// core, 1,024 wants with long names took 2.3 s. So an attack is measured up to three times.
	overload, measurements = 6 * time.Second, 3
	// patience is the time limit of a sample.
	patience = 90 * time.Second
	// backlog is the maximum number of requests ahead of the other tenant's keys, on any machine.
	backlog = 1_000
	// memoryLimit is the memory limit of watcher and writer in the chart. The fetcher's is no lower.
	memoryLimit = 256 << 20
	// goMemoryLimit is the limit that the chart gives to the Go runtime.
	goMemoryLimit = "GOMEMLIMIT=204MiB"
)

var _ = Describe("Another tenant's keys are filled in time", Ordered, ContinueOnFailure, func() {
	var (
		w              *world.World
		a              *hostile.Tenant
		other, control *filler
	)
	BeforeAll(func(ctx SpecContext) {
		start := func(tenants int) *world.World {
			return env.World(ctx, world.Options{
				Tenants: tenants, Env: []string{goMemoryLimit},
				Flags: map[string][]string{
					world.Watcher: {"--audit-interval=8s", "--min-refresh=" + hostile.Refresh},
					world.Fetcher: {"--min-refresh=" + hostile.Refresh},
				},
			})
		}
		w = start(1)
		w.Unfinished()
		a, other, control = hostile.New(w, 1), &filler{World: w.Tenants[0]}, &filler{World: start(0)}
	})
	for _, way := range hostile.Attacks() {
		It("while a tenant "+way.Name, func(ctx SpecContext) {
			DeferCleanup(func(ctx SpecContext) { a.Clear(ctx) })
			for range measurements {
				way.Run(ctx, a)
				u, d := measure(ctx, w, control, other)
				expectWithinMemory(ctx, w)
				Expect(d).To(BeNumerically("<=", max(2*u, u+overload)))
				if d <= max(2*u, u+grace) {
					return
				}
				a.Clear(ctx)
			}
			Fail(fmt.Sprintf("in each of %d measurements, the other tenant waited more than %v longer", measurements, grace))
		}, SpecTimeout(5*time.Minute))
	}
	It("and each service stops within 30 s while a tenant has slow rules", func(ctx SpecContext) {
		DeferCleanup(func(ctx SpecContext) { a.Clear(ctx) })
		hostile.SlowRules().Run(ctx, a)
		for _, s := range []*world.Service{w.Fetcher(), w.Watcher(), w.Writer()} {
			s.ShouldStop(ctx)
			s.Restart(ctx)
		}
	})
	It("while admission or metadata break the writes of 30 objects, and the writer stays ready", func(ctx SpecContext) {
		breakWrites(ctx, a, 30)
		ready := make(chan int, 1)
		go func() {
			n := 0
			for range 100 {
				if w.Writer().Ready(ctx) == nil {
					n++
				}
				<-time.After(200 * time.Millisecond) // as long as two timeouts of the writer
			}
			ready <- n
		}()
		for len(ready) == 0 {
			u, d := measure(ctx, w, control, other)
			Expect(d).To(BeNumerically("<=", u+grace))
		}
		Expect(<-ready).To(Equal(100), "polls")
		Eventually(func() (n int) {
			for _, e := range a.Events(ctx) {
				if e.Reason == "WriteFailed" || e.Reason == "BodyTooLarge" {
					n++
				}
			}
			return n
		}).Should(Equal(30))
	}, SpecTimeout(5*time.Minute))
	It("without a failed audit, and within the memory limits of the chart", func(ctx SpecContext) {
		Expect(w.Watcher().Log.Matching("audit could not read")).To(BeEmpty())
		expectWithinMemory(ctx, w)
	})
})

// expectWithinMemory expects that the services run within the memory limits of the chart.
func expectWithinMemory(ctx context.Context, w *world.World) {
	GinkgoHelper()
	for _, s := range []*world.Service{w.Watcher(), w.Fetcher(), w.Writer()} {
		Expect(s.Running()).To(BeTrue(), s.Name)
		Expect(s.Metric(ctx, "process_resident_memory_bytes")).To(BeNumerically("<", memoryLimit), s.Name)
	}
}

// measure creates keys of the control tenant and the other tenant at the same time, and returns their waits
// (p90).
func measure(ctx context.Context, w *world.World, control, other *filler) (undisturbed, during time.Duration) {
	GinkgoHelper()
	var u, d []time.Duration
	for began := time.Now(); len(d) < samples || time.Since(began) < exposure; {
		wait := control.start(ctx)
		d = append(d, other.start(ctx)())
		u = append(u, wait())
		Expect(w.Backlog(ctx)).To(BeNumerically("<=", backlog))
	}
	AddReportEntry("undisturbed and during: p90, longest",
		fmt.Sprintf("%v %v, %v %v", p90(u), p90(d), slices.Max(u), slices.Max(d)))
	return p90(u), p90(d)
}

// filler creates ordinary keys and measures when they are filled.
type filler struct {
	*world.World
	keys int
}

// start creates a key, every second one with a rule, and returns a function that waits until it is filled, and
// returns the time that took.
func (f *filler) start(ctx context.Context) (wait func() time.Duration) {
	GinkgoHelper()
	f.keys++
	name := fmt.Sprintf("ordinary-%d", f.keys)
	page := f.Origin.Page("/" + name).Says(name)
	took := make(chan time.Duration, 1)
	began := time.Now()
	traits := []world.Trait{world.Asking("mydata=" + page.URL())}
	if f.keys%2 == 0 {
		traits = append(traits, world.Annotated("x-kv8s.io/curl-expect", "mydata=size(body) > 0"))
	}
	object := f.Create(ctx, name, traits...)
	go func() {
		defer GinkgoRecover()
		defer close(took)
		object.EventuallyHasDataWithin(ctx, patience, "mydata", name)
		took <- time.Since(began)
	}()
	return func() time.Duration { return <-took }
}

// p90 returns the 90th percentile.
func p90(took []time.Duration) time.Duration {
	return slices.Sorted(slices.Values(took))[len(took)*9/10]
}
