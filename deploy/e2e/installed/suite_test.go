// Package installed checks an existing installation against the promises to users. Package installation lists
// the environment variables.
package installed_test

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/installation"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
)

func TestInstalled(t *testing.T) { installation.Run(t, "Installed") }

var i *world.World

var _ = BeforeSuite(func(ctx SpecContext) { i = installation.Open(ctx) })

// shouldNotChange checks that the ConfigMap does not change for a while.
func shouldNotChange(ctx context.Context, cm *world.ConfigMap) {
	GinkgoHelper()
	version := cm.Get(ctx).ResourceVersion
	Consistently(ctx, func() string { return cm.Get(ctx).ResourceVersion }).Should(Equal(version))
}

var _ = Describe("A fetched value", func() {
	It("arrives in one write that touches nothing else", func(ctx SpecContext) {
		page := i.Origin.Page("/fill").Says("hello there")
		cm := i.Create(ctx, "fill", world.Asking("mydata="+page.URL()),
			world.Holding("other", "  kept\r\nas it is \t"), world.Labelled("app", "cool"))
		cm.EventuallyHasData(ctx, "mydata", "hello there")
		shouldNotChange(ctx, cm)
		after := cm.Get(ctx)
		Expect(after.Data).To(Equal(map[string]string{"mydata": "hello there", "other": "  kept\r\nas it is \t"}))
		Expect(after.Labels).To(HaveKeyWithValue("app", "cool"))
		Expect(cm.Writes(ctx)).To(Equal(1))
		Expect(page.Hits()).To(Equal(1))
		cm.HasEvents(ctx)
	})

	It("is not written again if a refresh finds no change", func(ctx SpecContext) {
		page := i.Origin.Page("/refresh").Tagged().Says("the same")
		cm := i.Create(ctx, "refresh", world.Asking("mydata="+page.URL()), world.Annotated("x-kv8s.io/curl-refresh", "2s"))
		cm.EventuallyHasData(ctx, "mydata", "the same")
		version := cm.Get(ctx).ResourceVersion
		Eventually(ctx, page.NotModified).Should(BeNumerically(">=", 2))
		Expect(cm.Get(ctx).ResourceVersion).To(Equal(version))
		page.Says("another")
		cm.EventuallyHasData(ctx, "mydata", "another")
		Expect(cm.Writes(ctx)).To(Equal(2))
		cm.Unannotate(ctx, "x-kv8s.io/curl-refresh")
	})

	It("arrives in each of 50 ConfigMaps, in exactly one write", func(ctx SpecContext) {
		i.Load(ctx, "fifty", 50).ShouldEnd(ctx, 2*time.Minute)
	})
})
