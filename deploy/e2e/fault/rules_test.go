package fault_test

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
)

const (
	nowKey    = "x-kv8s.io/curl-now"
	expectKey = "x-kv8s.io/curl-expect"
)

var _ = Describe("A key with a rule keeps its last good value", func() {
	expecting := world.Annotated(expectKey, "mydata=size(json.rules) > 0")

	It("when NATS is wiped, and fetches only if other rules let the value in", func(ctx SpecContext) {
		w := env.World(ctx, world.Options{})
		page := w.Origin.Page("/changed").Tagged()
		same, kept := w.Fill(ctx, "same", `{"rules":[1]}`, expecting)
		_, changed := w.Fill(ctx, "changed", `{"rules":[1]}`, expecting)
		w.EventuallyQuiet(ctx)
		Expect(w.Watcher().Kill()).To(Succeed())
		changed.Annotate(ctx, expectKey, "mydata=size(json.rules) > 1")
		Expect(w.NATS.Wipe()).To(Succeed())
		Expect(w.NATS.Start()).To(Succeed())
		w.Watcher().Restart(ctx)
		eventuallyFills(ctx, w)

		changed.EventuallyReports(ctx, "mydata", "ContentRejected")
		Expect(page.NotModified()).To(BeZero(), "the request has no validators")
		Expect(changed.Get(ctx).Data).To(HaveKeyWithValue("mydata", `{"rules":[1]}`))
		page.Says(`{"rules":[1,2]}`)
		changed.Annotate(ctx, nowKey, "1")
		changed.EventuallyHasData(ctx, "mydata", `{"rules":[1,2]}`)
		w.EventuallyQuiet(ctx)
		Expect(same.Hits()).To(Equal(1))
		Expect(kept.Writes(ctx)).To(Equal(1))
	})
})

// eventuallyFills waits until the system fills a new key.
func eventuallyFills(ctx context.Context, w *world.World) {
	GinkgoHelper()
	page := w.Origin.Page("/new").Says("new")
	w.Create(ctx, "new", world.Asking("mydata="+page.URL())).EventuallyHasDataWithin(ctx, time.Minute, "mydata", "new")
}
