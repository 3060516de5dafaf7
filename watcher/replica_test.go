package watcher_test

import (
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"

	"github.com/kv8s/curl-me-that/proto/pipeline"
)

var _ = Describe("Two watchers", func() {
	var w *world

	BeforeEach(func(ctx SpecContext) { w = newWorld(ctx) })

	It("publish each want once if both are active", func(ctx SpecContext) {
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

	It("take turns with an election: the standby is ready, and takes over as soon as the leader ends",
		func(ctx SpecContext) {
			elect := func(o *options) {
				o.config.Election.Enabled = true
				o.config.Election.Lease, o.config.Election.Renew = time.Minute, 50*time.Second
			}
			leader := w.watch(elect).awaitReady()
			Eventually(leader.log).Should(gbytes.Say("publishing wants"))
			standby := w.watch(elect).awaitReady()
			Eventually(standby.log).Should(gbytes.Say("standing by"))
			w.create(ctx, "first", "k=example.com")
			Eventually(w.url(ctx, w.key("first", "k"))).ShouldNot(BeEmpty())

			leader.stop()
			w.create(ctx, "second", "k=example.com")
			// Before the Lease expires, which takes a minute.
			Eventually(w.url(ctx, w.key("second", "k"))).ShouldNot(BeEmpty())
			Eventually(standby.log).Should(gbytes.Say("leading"))
			Expect(standby.ready()).To(HaveSuffix("ok"))
		})
})
