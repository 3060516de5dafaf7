package acceptance_test

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/process"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

var _ = Describe("All services in one process", func() {
	var w *world.World
	var data string

	// start runs the program on the namespace and the data of the spec.
	start := func() *process.Process {
		GinkgoHelper()
		p := run(allInOne, []string{"KUBECONFIG=" + env.Cluster.Kubeconfig, "HOME=" + data},
			"--data-dir="+data, "--namespaces="+w.Namespace, "--allow-cidr=127.0.0.0/8,::1/128")
		Eventually(func() []string { return p.Log.Matching("Ready") }).ShouldNot(BeEmpty())
		return p
	}

	BeforeEach(func(ctx SpecContext) {
		w = env.World(ctx, world.Options{Without: world.Services()})
		w.Unfinished() // its streams are in the process
		data = GinkgoT().TempDir()
	})

	It("behave as they do separately, and drain on SIGTERM", func(ctx SpecContext) {
		p := start()
		page := w.Origin.Page("/joke").Says("why did the chicken …")
		cm := w.Create(ctx, "joke", world.Asking("mydata="+page.URL()))
		invalid := w.Create(ctx, "invalid", world.Asking("mydata=this isn't a url"))
		cm.EventuallyHasData(ctx, "mydata", "why did the chicken …")
		invalid.EventuallyTells(ctx, "InvalidAnnotation")
		Expect(invalid.Events(ctx)[0].Note).
			To(Equal("annotation value 'mydata=this isn't a url' does not match expected format key=url"))

		slow, waiting, release := w.Fetching(ctx, "waiting", "worth the wait")
		release()
		Expect(p.Stop(ctx)).To(BeZero())

		p = start()
		waiting.EventuallyHasDataWithin(ctx, 2*pipeline.AckWait, "mydata", "worth the wait")
		Expect(p.Stop(ctx)).To(BeZero())
		Expect(page.Hits()).To(Equal(1), "the streams were kept")
		Expect(slow.Hits()).To(BeNumerically("<=", 2))
		Expect(waiting.Writes(ctx)).To(Equal(1))
	})

	DescribeTable("lose nothing under load", func(ctx SpecContext, end func(context.Context, *process.Process), gets int) {
		load := w.Begin(ctx, 150)
		for n := range 4 {
			p := start()
			load.EventuallyFills(ctx, min(20+40*n, 150))
			end(ctx, p)
		}
		start()
		// If a service negatively acknowledges a message just as the broker stops, the message is
		// redelivered only after AckWait, as if the service had been killed.
		Eventually(load.Filled).WithTimeout(2 * pipeline.AckWait).Should(Equal(150))
		Expect(load.MostHits()).To(BeNumerically("<=", gets))
		w.EventuallyCaughtUp(ctx)
		for _, cm := range load.ConfigMaps {
			Expect(w.History.Writes(cm.Name)).To(Equal(1))
		}
	},
		Entry("when stopped", func(ctx context.Context, p *process.Process) { Expect(p.Stop(ctx)).To(BeZero()) }, 1),
		Entry("after kill -9", func(_ context.Context, p *process.Process) { Expect(p.Kill()).To(Succeed()) }, 5),
	)
})
