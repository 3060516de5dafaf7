package acceptance_test

import (
	"net/http"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

var _ = Describe("A failed fetch", func() {
	It("keeps the last good value and emits one Event when it starts and one when it ends", func(ctx SpecContext) {
		w := env.World(ctx, world.Options{})
		page, cm := w.Fill(ctx, "moody", "good", world.Annotated("x-kv8s.io/curl-refresh", "1s"))

		page.Fails(http.StatusNotFound)
		cm.EventuallyTells(ctx, "BadStatus")
		failed := page.Hits()
		Eventually(page.Hits).Should(BeNumerically(">=", failed+2), "it goes on trying")
		cm.Tells(ctx, "BadStatus")
		event := cm.Events(ctx)[0]
		Expect(event.Type).To(Equal("Warning"))
		Expect(event.Note).To(And(ContainSubstring("localhost"), ContainSubstring("404")))
		Expect(cm.Get(ctx).Data).To(HaveKeyWithValue("mydata", "good"))
		Expect(w.Stored(ctx, pipeline.Failures, "curl.failure.BadStatus.localhost.>")).To(BeNumerically(">=", 1))

		page.Says("good again")
		cm.EventuallyHasData(ctx, "mydata", "good again")
		cm.EventuallyTells(ctx, "BadStatus", "Recovered")
		Expect(cm.Status(ctx, "mydata").Error).To(BeEmpty())
		Expect(cm.Writes(ctx)).To(BeElementOf(3, 4), "one more if it has lasted for three intervals, and is stale")
	})

	It("recovers when the annotation is corrected", func(ctx SpecContext) {
		w := env.World(ctx, world.Options{})
		page := w.Origin.Page("/there").Says("there")
		cm := w.Create(ctx, "corrected", world.Asking("mydata="+w.Origin.Page("/missing").URL()))
		cm.EventuallyTells(ctx, "BadStatus")
		cm.EventuallyReports(ctx, "mydata", "BadStatus")
		cm.Ask(ctx, "mydata="+page.URL())
		cm.EventuallyHasData(ctx, "mydata", "there")
		cm.EventuallyTells(ctx, "BadStatus", "Recovered")
	})

	It("recovers when curl-now changes and the server works again", func(ctx SpecContext) {
		w := env.World(ctx, world.Options{})
		page := w.Origin.Page("/later")
		cm := w.Create(ctx, "later", world.Asking("mydata="+page.URL()))
		cm.EventuallyTells(ctx, "BadStatus")
		w.EventuallyQuiet(ctx)
		page.Says("there now")
		pastSharing(page)
		cm.Annotate(ctx, "x-kv8s.io/curl-now", "please")
		cm.EventuallyHasData(ctx, "mydata", "there now")
		cm.EventuallyTells(ctx, "BadStatus", "Recovered")
	})

	It("is retried soon if it may be transient, with one Event for all attempts", func(ctx SpecContext) {
		w := env.World(ctx, world.Options{})
		page := w.Origin.Page("/busy").Fails(http.StatusServiceUnavailable)
		cm := w.Create(ctx, "busy", world.Asking("mydata="+page.URL()))
		Eventually(page.Hits).Should(BeNumerically(">=", 3))
		// Otherwise the recovery overtakes a failure that the writer has not read yet.
		cm.EventuallyTells(ctx, "BadStatus")
		cm.EventuallyReports(ctx, "mydata", "BadStatus")
		page.Says("not busy any more")
		cm.EventuallyHasData(ctx, "mydata", "not busy any more")
		cm.EventuallyTells(ctx, "BadStatus", "Recovered")
		Expect(cm.Writes(ctx)).To(Equal(2))
	})
})
