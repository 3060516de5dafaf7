package installation

import (
	"context"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
)

// Load is a set of ConfigMaps, each with its own page.
type Load struct {
	*world.Load
	// Pages in the order of the ConfigMaps.
	Pages []*Page

	installation *Installation
}

// Load creates n pages and a ConfigMap for each. Their names start with the name of the load.
func (i *Installation) Load(ctx context.Context, name string, n int) *Load {
	GinkgoHelper()
	l := &Load{installation: i}
	urls := make([]string, n)
	for number := range n {
		page := i.Page(fmt.Sprintf("/%s/%d", name, number)).Says(ctx, world.Body(number))
		l.Pages, urls[number] = append(l.Pages, page), page.URL()
	}
	l.Load = i.World.Load(name, urls)
	for number := range n {
		l.Create(ctx, number)
	}
	return l
}

// EventuallyFills waits until at least n ConfigMaps have their body.
func (l *Load) EventuallyFills(ctx context.Context, n int, limit time.Duration) {
	GinkgoHelper()
	Eventually(ctx, l.Filled).WithTimeout(limit).Should(BeNumerically(">=", n), "ConfigMaps with their data")
}

// ShouldEnd waits until all ConfigMaps have their body. Each must have been written exactly once.
func (l *Load) ShouldEnd(ctx context.Context, limit time.Duration) {
	GinkgoHelper()
	l.EventuallyFills(ctx, len(l.ConfigMaps), limit)
	l.installation.shouldBeWritten(ctx, l.ConfigMaps, 1)
	for _, cm := range l.ConfigMaps {
		cm.HasEvents(ctx)
	}
}

// shouldBeWritten checks that the system wrote each ConfigMap this many times, and stays at that number for a
// while.
func (i *Installation) shouldBeWritten(ctx context.Context, all []*world.ConfigMap, times int) {
	GinkgoHelper()
	others := func() (names []string) {
		for _, cm := range all {
			if n := i.History.Writes(cm.Name); n != times {
				names = append(names, fmt.Sprintf("%s: %d", cm.Name, n))
			}
		}
		return names
	}
	Consistently(ctx, others).Should(BeEmpty(), "ConfigMaps with another number of writes than %d", times)
	i.EventuallyCaughtUp(ctx)
	Expect(others()).To(BeEmpty(), "ConfigMaps with another number of writes than %d", times)
}
