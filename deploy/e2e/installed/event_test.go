package installed_test

import (
	"net/http"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
)

var _ = Describe("An Event about", func() {
	It("an invalid annotation is emitted once, in these words", func(ctx SpecContext) {
		cm := i.Create(ctx, "invalid", world.Asking("not correct"))
		shouldTell(ctx, cm, "InvalidAnnotation")
		event := cm.Events(ctx)[0]
		Expect(event.Type).To(Equal("Warning"))
		Expect(event.Note).To(Equal("annotation value 'not correct' does not match expected format key=url"))
		Expect(event.Regarding.UID).To(Equal(cm.Get(ctx).UID))
		Eventually(ctx, func() int { return i.History.Writes(cm.Name) }).Should(Equal(1), "the status")
		cm.Tells(ctx, "InvalidAnnotation")
		Expect(cm.Writes(ctx)).To(Equal(1))
	})

	It("a failure is emitted once and its end once, while the last good value stays", func(ctx SpecContext) {
		page := i.Page("/moody").Says(ctx, "good")
		cm := i.Create(ctx, "moody", world.Asking("mydata="+page.URL()), world.Annotated("x-kv8s.io/curl-refresh", "2s"))
		shouldHold(ctx, cm, "mydata", "good")

		page.Fails(ctx, http.StatusNotFound)
		shouldTell(ctx, cm, "BadStatus")
		failed := page.Hits(ctx)
		Eventually(ctx, func() int { return page.Hits(ctx) }).Should(BeNumerically(">=", failed+2), "it goes on trying")
		cm.Tells(ctx, "BadStatus")
		Expect(cm.Events(ctx)[0].Note).To(ContainSubstring("404"))
		Expect(cm.Get(ctx).Data).To(HaveKeyWithValue("mydata", "good"))

		page.Says(ctx, "good again")
		shouldHold(ctx, cm, "mydata", "good again")
		shouldTell(ctx, cm, "BadStatus", "Recovered")
		Expect(cm.Writes(ctx)).To(BeElementOf(3, 4), "one more if it has lasted for three intervals, and is stale")
		cm.Unannotate(ctx, "x-kv8s.io/curl-refresh")
	})
})
