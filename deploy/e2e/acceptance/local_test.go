package acceptance_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/process"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/suitetest"
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
		code := suitetest.Must(p.Stop(ctx))
		Expect(code).To(BeZero())

		p = start()
		waiting.EventuallyHasDataWithin(ctx, 2*pipeline.AckWait, "mydata", "worth the wait")
		code = suitetest.Must(p.Stop(ctx))
		Expect(code).To(BeZero())
		Expect(page.Hits()).To(Equal(1), "the streams were kept")
		Expect(slow.Hits()).To(BeNumerically("<=", 2))
		Expect(waiting.Writes(ctx)).To(Equal(1))
	})

	It("lose nothing when stopped under load", func(ctx SpecContext) {
		load := w.Begin(ctx, 150)
		for n := range 4 {
			p := start()
			load.EventuallyFills(ctx, min(20+40*n, 150))
			Expect(p.Stop(ctx)).To(BeZero())
		}
		start()
		// If a service negatively acknowledges a message just as the broker stops, the message is
		// redelivered only after AckWait, as if the service had been killed.
		Eventually(load.Filled).WithTimeout(2 * pipeline.AckWait).Should(Equal(150))
		Expect(load.MostHits()).To(Equal(1))
	})

	It("keep their streams after kill -9", func(ctx SpecContext) {
		p := start()
		load := w.Begin(ctx, 50)
		load.EventuallyFills(ctx, 20)
		Expect(p.Kill()).To(Succeed())
		p = start()
		load.EventuallyFills(ctx, 50)
		Expect(load.MostHits()).To(BeNumerically("<=", 2))
		w.EventuallyCaughtUp(ctx)
		for _, cm := range load.ConfigMaps {
			Expect(w.History.Writes(cm.Name)).To(Equal(1))
		}
		Expect(p.Stop(ctx)).To(BeZero())
	})
})

var _ = Describe("RBAC of the services", func() {
	It("grants each service few permissions, and the fetcher none", func(ctx SpecContext) {
		o := world.Options{Kubeconfigs: world.LeastRights(env.Cluster), Flags: map[string][]string{}}
		w := env.World(ctx, o)
		page := w.Origin.Page("/modest").Says("modest")
		cm := w.Create(ctx, "modest", world.Asking("a="+page.URL()+" b="+page.URL()))
		cm.EventuallyHasData(ctx, "a", "modest")
		cm.EventuallyHasData(ctx, "b", "modest")
		cm.Put(ctx, "a", "changed by hand")
		cm.EventuallyHasData(ctx, "a", "modest")
		cm.Ask(ctx, "a="+page.URL())
		cm.EventuallyLacks(ctx, "b")
		cm.EventuallyTells(ctx, "Drifted")
		w.Create(ctx, "missing", world.Asking("mydata="+w.Origin.Page("/missing").URL())).EventuallyTells(ctx, "BadStatus")
		bare := w.Create(ctx, "bare")
		bare.Ask(ctx, "mydata="+page.URL())
		bare.EventuallyHasData(ctx, "mydata", "modest")
		for _, name := range world.Services() {
			Expect(w.Service(name).Log.Matching("forbidden")).To(BeEmpty())
		}
	})
})
