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
	It("of each service loses nothing and writes nothing twice while 120 ConfigMaps are filled", func(ctx SpecContext) {
		w := env.World(ctx, world.Options{AckWait: shortAckWait, Flags: neverParking()})
		load := w.Begin(ctx, 120)
		for n, name := range world.Services() {
			load.EventuallyFills(ctx, 20+30*n)
			Expect(w.Service(name).Kill()).To(Succeed())
			w.Service(name).Restart(ctx)
		}
		load.EventuallyEnds(ctx, 3*time.Minute)
		Expect(load.MostHits()).To(BeNumerically("<=", 1+len(world.Services())), "GETs of one page")
	})

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
	It("drains each service within 30 s under load, and nothing waits for redelivery", func(ctx SpecContext) {
		w := env.World(ctx, world.Options{Flags: neverParking()}) // a parked key comes back within a minute
		load := w.Begin(ctx, 120)
		for n, name := range world.Services() {
			load.EventuallyFills(ctx, 20+30*n)
			w.Service(name).ShouldStop(ctx)
			w.Service(name).Restart(ctx)
		}
		load.EventuallyEnds(ctx, 25*time.Second)
		Expect(load.MostHits()).To(Equal(1), "GETs of one page")
	})
})

var _ = It("Two watchers hand over when the leader is killed and when it stops", func(ctx SpecContext) {
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
