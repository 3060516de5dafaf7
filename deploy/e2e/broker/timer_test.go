package broker_test

import (
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

var _ = Describe("A timer", func() {
	It("fires on time after all fetchers and the broker were killed", func(ctx SpecContext) {
		// late is the maximum delay of the GET on a busy machine.
		const late = 10 * time.Second
		url, server := runBroker()
		w := env.World(ctx, world.Options{Broker: url})
		page, _ := w.Fill(ctx, "timed", "as before", world.Annotated(refreshKey, "30s"))
		w.EventuallyQuiet(ctx)

		scheduled := func(g Gomega) time.Time {
			stream, err := w.JetStream.Stream(ctx, pipeline.Requests)
			g.Expect(err).NotTo(HaveOccurred())
			timer, err := stream.GetLastMsgForSubject(ctx,
				pipeline.Key{Namespace: w.Namespace, Name: "timed", Key: "mydata"}.Timer())
			g.Expect(err).NotTo(HaveOccurred())
			at, err := time.Parse(time.RFC3339Nano, strings.TrimPrefix(timer.Header.Get("Nats-Schedule"), "@at "))
			g.Expect(err).NotTo(HaveOccurred())
			return at
		}
		var at time.Time
		Eventually(ctx, func(g Gomega) { at = scheduled(g) }).Should(Succeed())

		Expect(w.Fetcher().Kill()).To(Succeed())
		Expect(server.Kill()).To(Succeed())
		Expect(server.Again()).To(Succeed())
		w.Fetcher().Restart(ctx)
		latest := at // or when all is back, on a machine that is busy with other tests
		if back := time.Now(); back.After(at) {
			latest = back
		}
		Eventually(ctx, func(g Gomega) {
			if time.Now().Before(at) {
				g.Expect(scheduled(g)).To(Equal(at), "of the timer that is stored")
			}
		}).Should(Succeed())

		Eventually(page.Hits).WithTimeout(time.Until(latest) + late).Should(Equal(2))
		Expect(page.Arrivals()[1]).To(And(BeTemporally(">", at.Add(-time.Second)), BeTemporally("<", latest.Add(late))))
	})
})
