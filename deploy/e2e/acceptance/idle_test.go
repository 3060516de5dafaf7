package acceptance_test

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
)

var _ = Describe("An idle pipeline", func() {
	It("writes, publishes and fetches nothing", func(ctx SpecContext) {
		w := env.World(ctx, world.Options{})
		load := w.Begin(ctx, 40) // fewer than are logged in a second, after which a line says how many were left out
		load.EventuallyEnds(ctx, time.Minute)
		w.Create(ctx, "invalid", world.Asking("not correct")).EventuallyTells(ctx, "InvalidAnnotation")
		w.Create(ctx, "theirs", world.Holding("mydata", "theirs"), world.Asking("mydata="+load.Pages[0].URL())).
			EventuallyTells(ctx, "KeyExists")
		failing := w.Create(ctx, "failing", world.Asking("mydata="+w.Origin.Page("/missing").URL()))
		failing.EventuallyTells(ctx, "BadStatus")
		failing.EventuallyReports(ctx, "mydata", "BadStatus")
		w.EventuallyQuiet(ctx)
		before := w.Counters(ctx)
		Consistently(func() map[string]float64 { return w.Counters(ctx) }).
			WithTimeout(20 * time.Second).WithPolling(2 * time.Second).Should(Equal(before))
		Expect(w.Events(ctx)).To(HaveLen(3))
	})
})
