package watcher_test

import (
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/proto/pipeline"
)

var _ = Describe("Two watchers", func() {
	It("publish each want once if both are active", func(ctx SpecContext) {
		w := newWorld(ctx)
		one, two := w.watch(), w.watch()
		one.awaitReady()
		two.awaitReady()
		for n := range 30 {
			w.create(ctx, fmt.Sprintf("cm-%d", n), fmt.Sprintf("k=example.com/%d", n))
		}
		for n := range 30 {
			Eventually(w.url(ctx, w.key(fmt.Sprintf("cm-%d", n), "k"))).Should(Equal(fmt.Sprintf("https://example.com/%d", n)))
		}
		Consistently(w.sequence(ctx, pipeline.Requests)).Should(BeEquivalentTo(30))
		for n := range 30 {
			w.ask(ctx, fmt.Sprintf("cm-%d", n), fmt.Sprintf("k=example.com/%d/new", n))
		}
		for n := range 30 {
			Eventually(w.url(ctx,
				w.key(fmt.Sprintf("cm-%d", n), "k"))).Should(Equal(fmt.Sprintf("https://example.com/%d/new", n)))
		}
		Consistently(w.sequence(ctx, pipeline.Requests)).Should(BeEquivalentTo(60))
		for n := range 30 {
			w.delete(ctx, fmt.Sprintf("cm-%d", n))
		}
		for n := range 30 {
			Eventually(w.retracted(ctx, w.key(fmt.Sprintf("cm-%d", n), "k"))).Should(BeTrue())
		}
		Consistently(w.sequence(ctx, pipeline.Requests)).Should(BeEquivalentTo(90))
	})
})
