package watcher_test

import (
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/deploy/testkit/kubetest"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

var _ = Describe("A backlog of wants", func() {
	It("is limited until fetchers receive wants, and does not delay other namespaces",
		func(ctx SpecContext) {
			const most, workers = 512, 8
			w := newWorld(ctx)
			other := *w
			other.namespace = kubetest.Namespace(ctx, GinkgoTB(), kube, "watcher-", nil)
			pairs := ""
			for n := range 64 {
				pairs += fmt.Sprintf(" k%d=example.com", n)
			}
			w.createAll(ctx, 16, func(n int) string { return fmt.Sprintf("cm-%d", n) }, pairs)
			w.watch(func(o *options) { o.config.Namespaces = []string{w.namespace, other.namespace} })
			Eventually(w.sequence(ctx, pipeline.Requests)).Should(BeNumerically(">=", most))
			Consistently(w.sequence(ctx, pipeline.Requests)).Should(BeNumerically("<", most+workers))
			other.create(ctx, "cm", "k=example.com")
			Eventually(other.url(ctx, other.key("cm", "k"))).ShouldNot(BeEmpty())
			w.receive(ctx)
			Eventually(w.sequence(ctx, pipeline.Requests)).Should(BeNumerically(">=", 16*64+1))
		})
})
