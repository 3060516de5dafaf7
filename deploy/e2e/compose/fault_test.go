package compose_test

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// recovery is how long interrupted work may take: after AckWait, 30 s, it is redelivered to another
// container.
const recovery = 3 * time.Minute

var _ = Describe("Under load,", Ordered, func() {
	AfterAll(func(ctx SpecContext) { scale(ctx, "1") })

	It("four fetchers share the work", func(ctx SpecContext) {
		scale(ctx, "4")
		Expect(running(ctx, "fetcher")).To(Equal(4))
		i.Load(ctx, "four", 60).ShouldEnd(ctx, recovery)
	})

	It("work waits while no fetcher runs", func(ctx SpecContext) {
		compose(ctx, "stop", "fetcher")
		load := i.Load(ctx, "none", 20)
		Consistently(ctx, load.Filled).Should(BeZero())
		compose(ctx, "start", "fetcher")
		load.ShouldEnd(ctx, recovery)
	})

	It("restarting NATS loses nothing", func(ctx SpecContext) {
		first := i.Load(ctx, "before-nats", 20)
		held := i.Page("/held").Says(ctx, "through it all")
		held.Hold(ctx)
		load := make(chan func(context.Context), 1)
		go func() {
			defer GinkgoRecover()
			second := i.Load(ctx, "beside-nats", 60)
			load <- func(ctx context.Context) { second.ShouldEnd(ctx, recovery) }
		}()
		compose(ctx, "restart", "nats")
		held.Release(ctx)
		var end func(context.Context)
		Eventually(load).Should(Receive(&end))
		end(ctx)
		first.ShouldEnd(ctx, recovery)
	})

	DescribeTable("killing a container loses nothing:", func(ctx SpecContext, service string) {
		load := i.Load(ctx, "killed-"+service, 40)
		compose(ctx, "kill", "--signal", "SIGKILL", service)
		compose(ctx, "up", "--detach", "--no-build", "--no-recreate", "--no-deps", "--wait", service)
		load.EventuallyFills(ctx, 40, recovery)
	},
		Entry(nil, "watcher"),
		Entry(nil, "writer"),
		Entry(nil, "nats"),
		Entry(nil, "kube-apiserver"),
	)

	It("NATS denies nothing, and no service panics", func(ctx SpecContext) {
		for _, service := range []string{"nats", "watcher", "fetcher", "writer", "keeper"} {
			logs := compose(ctx, "logs", "--no-color", "--no-log-prefix", service)
			for _, word := range []string{"Violation", "violation", "panic:", "fatal error:"} {
				Expect(logs).NotTo(ContainSubstring(word), service)
			}
		}
	})
})
