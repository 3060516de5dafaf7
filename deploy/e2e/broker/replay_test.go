package broker_test

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/process"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

var _ = It("A replay resumes after the broker is restarted", func(ctx SpecContext) {
	const n = 150
	w := env.World(ctx, world.Options{
		AckWait: shortAckWait, Flags: map[string][]string{world.Fetcher: {"--max-attempts=1", "--recheck=1h"}},
	})
	load := w.Prepare("load", n)
	for i, page := range load.Pages {
		page.Fails(503)
		load.Create(ctx, i)
	}
	Eventually(ctx, func() int { return w.Stored(ctx, pipeline.DeadLetters, "curl.failure.>") }).
		WithTimeout(time.Minute).WithPolling(100 * time.Millisecond).Should(Equal(n))
	w.EventuallyQuiet(ctx)
	for i, page := range load.Pages {
		page.Says(world.Body(i))
	}

	p := suitetest.Must(process.Start(process.Program{
		Name: "curlctl", Path: w.Program("curlctl"),
		Args: []string{"replay", "--nats-url", w.Broker(), "--all", "--wait", "--yes", "--timeout=2m", "--rate=40"},
	}))
	DeferCleanup(func() {
		if p.Running() {
			Expect(p.Kill()).To(Succeed())
		}
	})
	load.EventuallyFills(ctx, 20)
	Expect(p.Running()).To(BeTrue())
	w.NATS.Stop()
	Eventually(func() []string { return p.Log.Matching("Lost the connection to NATS") }).Should(HaveLen(1))
	Expect(w.NATS.Start()).To(Succeed())
	Eventually(p.Running).WithTimeout(2*time.Minute).Should(BeFalse(), "curlctl still runs")
	Expect(p.Wait(ctx)).To(BeZero(), p.Log.String())
	Expect(p.Log.String()).To(And(MatchRegexp(`(?m)^Outcome.*: 150 fetched\.$`),
		ContainSubstring("The writer has handled all of them.")))
	w.EventuallyQuiet(ctx)
	w.EventuallyCaughtUp(ctx)
	Expect(load.Filled()).To(Equal(n))
	for _, cm := range load.ConfigMaps {
		Expect(w.History.Writes(cm.Name)).To(Equal(2), "the failure and the body in %s", cm.Name)
	}
})
