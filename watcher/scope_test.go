package watcher_test

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"

	"github.com/kv8s/curl-me-that/deploy/testkit/kubetest"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

// elsewhere returns the same world with another namespace.
func (w *world) elsewhere(ctx context.Context) *world {
	GinkgoHelper()
	other := *w
	other.namespace = kubetest.Namespace(ctx, GinkgoTB(), kube, "watcher-", nil)
	return &other
}

var _ = Describe("A watcher that no longer watches a namespace", func() {
	var here, there *world

	BeforeEach(func(ctx SpecContext) {
		here = newWorld(ctx)
		there = here.elsewhere(ctx)
	})

	elected := func(name string) func(*options) {
		return func(o *options) { o.config.Election.Enabled, o.config.Election.Name = name != "", name }
	}
	watching := func(worlds ...*world) func(*options) {
		return func(o *options) {
			o.config.Namespaces = nil
			for _, w := range worlds {
				o.config.Namespaces = append(o.config.Namespaces, w.namespace)
			}
		}
	}

	It("retracts its wants of that namespace, and removes no data", func(ctx SpecContext) {
		before := here.watch(elected("ours"), watching(here, there))
		here.satisfied(ctx, "cm", "example.com")
		there.satisfied(ctx, "cm", "example.com")
		before.stop()
		sequence := here.sequence(ctx, pipeline.Requests)()
		after := here.watch(elected("ours"), watching(here))
		Eventually(here.retracted(ctx, there.key("cm", "k"))).Should(BeTrue())
		Consistently(here.sequence(ctx, pipeline.Requests)).Should(Equal(sequence + 1))
		Expect(here.url(ctx, here.key("cm", "k"))()).NotTo(BeEmpty())
		Expect(here.results(ctx)).To(BeEmpty())
		Expect(after.value(own + "out_of_scope_wants")()).To(BeZero())
	})

	DescribeTable("ignores wants that another watcher may have published, and counts and logs them once: from",
		func(ctx SpecContext, publisher, reader string) {
			before := here.watch(elected(publisher), watching(there))
			there.satisfied(ctx, "cm", "example.com")
			before.stop()
			after := here.watch(elected(reader), watching(here))
			Eventually(after.value(own + "out_of_scope_wants")).Should(BeEquivalentTo(1))
			Eventually(after.log).Should(gbytes.Say("ignoring wants of other installations"))
			Expect(here.nats.Restart()).To(Succeed())
			Eventually(after.value(own + "sessions_total")).Should(BeEquivalentTo(2))
			Expect(here.url(ctx, there.key("cm", "k"))()).NotTo(BeEmpty())
			Expect(after.log).NotTo(gbytes.Say("ignoring wants of other installations"))
		},
		Entry("another installation", "theirs", "ours"),
		Entry("a watcher without an election", "", "ours"),
		Entry("any watcher, if neither has an election", "", ""),
	)
})
