package world

import (
	"context"
	"fmt"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/origin"
)

// creators is the number of concurrent creators of ConfigMaps.
const creators = 4

// Load is a set of ConfigMaps, each with its own page.
type Load struct {
	// ConfigMaps in the order of their pages.
	ConfigMaps []*ConfigMap
	// Pages that they request for the key mydata.
	Pages []*origin.Page

	world *World
	done  sync.WaitGroup
}

// Prepare returns a load of n ConfigMaps that do not exist yet. Their names and pages start with name.
func (w *World) Prepare(name string, n int) *Load {
	l := &Load{world: w}
	for i := range n {
		l.ConfigMaps = append(l.ConfigMaps, w.Named(fmt.Sprintf("%s-%03d", name, i)))
		l.Pages = append(l.Pages, w.Origin.Page(fmt.Sprintf("/%s/%d", name, i)).Says(Body(i)))
	}
	return l
}

// Begin creates n ConfigMaps in the background, so that the spec can inject faults meanwhile.
func (w *World) Begin(ctx context.Context, n int) *Load {
	GinkgoHelper()
	l := w.Prepare("load", n)
	for first := range creators {
		l.done.Go(func() {
			defer GinkgoRecover()
			for i := first; i < n; i += creators {
				l.Create(ctx, i)
			}
		})
	}
	DeferCleanup(l.done.Wait)
	return l
}

// Load creates n pages and a ConfigMap for each. Their names start with name.
func (w *World) Load(ctx context.Context, name string, n int) *Load {
	GinkgoHelper()
	l := w.Prepare(name, n)
	for i := range n {
		l.Create(ctx, i)
	}
	return l
}

// Create creates ConfigMap number i.
func (l *Load) Create(ctx context.Context, i int) {
	GinkgoHelper()
	l.world.Create(ctx, l.ConfigMaps[i].Name, Asking("mydata="+l.Pages[i].URL()))
}

// Filled returns the number of ConfigMaps that have their body.
func (l *Load) Filled() int {
	n := 0
	for i, cm := range l.ConfigMaps {
		if cm.data("mydata") == Body(i) {
			n++
		}
	}
	return n
}

// Body is the body of page number i.
func Body(i int) string { return fmt.Sprintf("body %d", i) }

// EventuallyFills waits until at least n ConfigMaps have their data.
func (l *Load) EventuallyFills(ctx context.Context, n int) {
	GinkgoHelper()
	Eventually(ctx, l.Filled).WithTimeout(2*time.Minute).Should(BeNumerically(">=", n), "ConfigMaps with their data")
}

// ShouldEnd waits until all ConfigMaps have their data. Each must have been written exactly once.
func (l *Load) ShouldEnd(ctx context.Context, limit time.Duration) {
	GinkgoHelper()
	Eventually(ctx, l.Filled).WithTimeout(limit).Should(Equal(len(l.ConfigMaps)), "ConfigMaps with their data")
	l.world.ShouldBeWritten(ctx, l.ConfigMaps, 1)
	for _, cm := range l.ConfigMaps {
		cm.HasEvents(ctx)
	}
}

// ShouldBeWritten checks that the system wrote each ConfigMap this many times, and stays at that number for a while.
func (w *World) ShouldBeWritten(ctx context.Context, all []*ConfigMap, times int) {
	GinkgoHelper()
	others := func() (names []string) {
		for _, cm := range all {
			if n := w.History.Writes(cm.Name); n != times {
				names = append(names, fmt.Sprintf("%s: %d", cm.Name, n))
			}
		}
		return names
	}
	Consistently(ctx, others).Should(BeEmpty(), "ConfigMaps with another number of writes than %d", times)
	w.EventuallyCaughtUp(ctx)
	Expect(others()).To(BeEmpty(), "ConfigMaps with another number of writes than %d", times)
}

// EventuallyEnds waits until all ConfigMaps have their data and nothing is in flight.
// Each must have been written exactly once.
func (l *Load) EventuallyEnds(ctx context.Context, limit time.Duration) {
	GinkgoHelper()
	l.done.Wait()
	Eventually(ctx, l.Filled).WithTimeout(limit).Should(Equal(len(l.ConfigMaps)), "ConfigMaps with their data")
	l.world.EventuallyQuiet(ctx)
	l.world.EventuallyCaughtUp(ctx)
	for _, cm := range l.ConfigMaps {
		Expect(l.world.History.Writes(cm.Name)).To(Equal(1), "writes to %s", cm.Name)
	}
	Expect(l.world.Events(ctx)).To(BeEmpty(), "Events")
}

// MostHits returns the maximum number of requests for one page.
func (l *Load) MostHits() int {
	most := 0
	for _, page := range l.Pages {
		most = max(most, page.Hits())
	}
	return most
}

// Meanwhile calls do in a loop until stop is called. It pauses for three quarters of the time, to leave room
// for other writers on a busy machine.
func Meanwhile(ctx context.Context, do func()) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() {
		defer GinkgoRecover()
		for pause := 10 * time.Millisecond; ; {
			select {
			case <-ctx.Done():
				return
			case <-time.After(pause):
			}
			began := time.Now()
			do()
			pause = max(10*time.Millisecond, 3*time.Since(began))
		}
	})
	stop = func() { cancel(); running.Wait() }
	DeferCleanup(stop)
	return stop
}
