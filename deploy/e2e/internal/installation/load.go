package installation

import (
	"context"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
)

// key that the ConfigMaps of a load ask for.
const key = "mydata"

// Load is a number of ConfigMaps, each with its own page.
type Load struct {
	// ConfigMaps and their Pages, in the same order.
	ConfigMaps []*world.ConfigMap
	Pages      []*Page

	installation *Installation
}

// Load creates n pages and a ConfigMap for each. Names begin with the name of the load.
func (i *Installation) Load(ctx context.Context, name string, n int) *Load {
	GinkgoHelper()
	l := &Load{installation: i}
	for number := range n {
		l.Pages = append(l.Pages, i.Page(fmt.Sprintf("/%s/%d", name, number)).Says(ctx, body(number)))
	}
	for number, page := range l.Pages {
		l.ConfigMaps = append(l.ConfigMaps,
			i.Create(ctx, fmt.Sprintf("%s-%03d", name, number), world.Asking(key+"="+page.URL())))
	}
	return l
}

func body(number int) string { return fmt.Sprintf("body %d", number) }

// Filled returns the number of ConfigMaps with data.
func (l *Load) Filled() int {
	filled := 0
	for number, cm := range l.ConfigMaps {
		if object := l.installation.History.Latest(cm.Name); object != nil && object.Data[key] == body(number) {
			filled++
		}
	}
	return filled
}

// EventuallyFills waits until at least n ConfigMaps have their data.
func (l *Load) EventuallyFills(ctx context.Context, n int, limit time.Duration) {
	GinkgoHelper()
	Eventually(ctx, l.Filled).WithTimeout(limit).Should(BeNumerically(">=", n), "ConfigMaps with their data")
}

// ShouldEnd waits until all ConfigMaps have their data. Each must have been written
// exactly once, and no more for a while.
func (l *Load) ShouldEnd(ctx context.Context, limit time.Duration) {
	GinkgoHelper()
	l.EventuallyFills(ctx, len(l.ConfigMaps), limit)
	Consistently(ctx, func() []string { return l.rewritten() }).
		Should(BeEmpty(), "ConfigMaps that were not written exactly once")
	Eventually(ctx, func() error { return l.installation.History.CaughtUp(ctx) }).Should(Succeed())
	Expect(l.rewritten()).To(BeEmpty(), "ConfigMaps that were not written exactly once")
	for _, cm := range l.ConfigMaps {
		cm.Tells(ctx)
	}
}

func (l *Load) rewritten() []string {
	var names []string
	for _, cm := range l.ConfigMaps {
		if n := l.installation.History.Writes(cm.Name); n != 1 {
			names = append(names, fmt.Sprintf("%s: %d", cm.Name, n))
		}
	}
	return names
}
