package fault_test

import (
	"net/http"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
	"github.com/kv8s/curl-me-that/deploy/testkit/kubetest"
)

var _ = Describe("kill -9", func() {
	DescribeTable("loses nothing and writes nothing twice while 200 ConfigMaps are filled", func(
		ctx SpecContext, name string,
	) {
		w := env.World(ctx, world.Options{AckWait: shortAckWait})
		load := w.Begin(ctx, 200)
		const kills = 3
		for n := range kills {
			load.EventuallyFills(ctx, 30+50*n)
			Expect(w.Service(name).Kill()).To(Succeed())
			w.Service(name).Restart(ctx)
		}
		load.EventuallyEnds(ctx, 90*time.Second)
		Expect(load.MostHits()).To(BeNumerically("<=", 1+kills), "GETs of one page")
	},
		Entry("for the watcher", world.Watcher),
		Entry("for the fetcher", world.Fetcher),
		Entry("for the writer", world.Writer),
	)

	DescribeTable("of a writer during a patch causes one write", func(
		ctx SpecContext, fault kubetest.Fault, written bool,
	) {
		g, o := behindGateway(world.Writer)
		o.AckWait = shortAckWait
		w := env.World(ctx, o)
		page := w.Origin.Page("/once").Says("once is enough")
		g.Break(kubetest.Method(http.MethodPatch, fault))
		cm := w.Create(ctx, "once", world.Asking("mydata="+page.URL()))
		Eventually(func() int { return g.Requests(http.MethodPatch) }).Should(BeNumerically(">=", 1))
		if written {
			cm.EventuallyHasData(ctx, "mydata", "once is enough")
		}
		Expect(w.Writer().Kill()).To(Succeed())
		g.Heal()
		w.Writer().Restart(ctx)
		cm.EventuallyHasData(ctx, "mydata", "once is enough")
		w.EventuallyQuiet(ctx)
		Expect(cm.Writes(ctx)).To(Equal(1))
		Expect(page.Hits()).To(Equal(1))
	},
		Entry("before it", kubetest.Fault(kubetest.Silence), false),
		Entry("before its response", kubetest.Fault(kubetest.WithholdAnswer), true),
	)
})

var _ = Describe("SIGTERM", func() {
	DescribeTable("drains within 30 s under load, and nothing waits for redelivery", func(ctx SpecContext, name string) {
		w := env.World(ctx, world.Options{Flags: neverParking()}) // a parked key comes back within a minute
		load := w.Begin(ctx, 200)
		for n := range 3 {
			load.EventuallyFills(ctx, 30+50*n)
			w.Service(name).ShouldStop(ctx)
			w.Service(name).Restart(ctx)
		}
		load.EventuallyEnds(ctx, 25*time.Second)
		Expect(load.MostHits()).To(Equal(1), "GETs of one page")
	},
		Entry("for the watcher", world.Watcher),
		Entry("for the fetcher", world.Fetcher),
		Entry("for the writer", world.Writer),
	)

	It("lets a fetcher wait for the response to a slow GET", func(ctx SpecContext) {
		w := env.World(ctx, world.Options{})
		page, cm, release := w.Fetching(ctx, "slow", "waited for")
		stopped := make(chan struct{})
		go func() {
			defer GinkgoRecover()
			defer close(stopped)
			w.Fetcher().ShouldStop(ctx)
		}()
		Consistently(stopped).WithTimeout(aWhile / 2).ShouldNot(BeClosed())
		release()
		Eventually(stopped).Should(BeClosed())
		cm.EventuallyHasData(ctx, "mydata", "waited for")
		w.Fetcher().Restart(ctx)
		w.EventuallyQuiet(ctx)
		Expect(page.Hits()).To(Equal(1))
	})
})

var _ = Describe("Two watchers", func() {
	It("hand over when the leader is killed and when it stops", func(ctx SpecContext) {
		w := env.World(ctx, world.Options{Without: []string{world.Watcher}, Flags: neverParking()})
		election := []string{
			"--leader-elect", "--leader-elect-namespace=" + w.Namespace, "--leader-elect-lease-duration=8s",
			"--leader-elect-renew-deadline=7s", "--leader-elect-retry-period=300ms",
		}
		leader := w.Launch(ctx, world.Watcher, election...)
		leader.EventuallyReady(ctx)
		Eventually(func() []string { return leader.Log.Matching(`"leading"`) }).Should(HaveLen(1))
		standby := w.Launch(ctx, world.Watcher, election...)
		standby.EventuallyReady(ctx)
		load := w.Begin(ctx, 40)
		load.EventuallyEnds(ctx, time.Minute)
		Expect(standby.Metric(ctx, "curlmethat_watcher_wants_published_total")).To(BeZero())

		Expect(leader.Kill()).To(Succeed())
		w.Fill(ctx, "after", "after the kill")
		Expect(standby.Log.Matching(`"leading"`)).To(HaveLen(1))

		leader.Restart(ctx)
		standby.ShouldStop(ctx)
		w.Fill(ctx, "end", "after the end")
		w.EventuallyQuiet(ctx)
		Expect(w.Published(ctx)).To(Equal(42), "messages in the stream")
		Expect(load.MostHits()).To(Equal(1), "GETs of one page")
	})
})

// neverParking returns flags with enough slots for all keys, so that the fetcher publishes no timers that park
// keys.
func neverParking() map[string][]string {
	return map[string][]string{world.Fetcher: {"--concurrency=256", "--per-host=128"}}
}
