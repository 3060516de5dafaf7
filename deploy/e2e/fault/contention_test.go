package fault_test

import (
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
)

var _ = Describe("A ConfigMap with other writers", func() {
	It("ends with the last of 100 annotations in a second, after few fetches", func(ctx SpecContext) {
		env.World(ctx, world.Options{}).EndsWithLastOf(ctx, 100)
	})

	It("is filled despite constant edits, which are kept", func(ctx SpecContext) {
		w := env.World(ctx, world.Options{})
		page := w.Origin.Page("/busy").Says("between the edits")
		cm := w.Create(ctx, "busy", world.Holding("counter", "0"))
		edits := 0
		stop := world.Meanwhile(ctx, func() {
			edits++
			cm.Put(ctx, "counter", fmt.Sprint(edits))
		})
		cm.Ask(ctx, "mydata="+page.URL())
		cm.EventuallyHasData(ctx, "mydata", "between the edits")
		cm.Drop(ctx, "mydata")
		cm.EventuallyHasData(ctx, "mydata", "between the edits")
		stop()
		w.EventuallyQuiet(ctx)
		Expect(cm.Get(ctx).Data).To(Equal(map[string]string{"counter": fmt.Sprint(edits), "mydata": "between the edits"}))
		Expect(cm.Writes(ctx)).To(Equal(2))
	})
})
