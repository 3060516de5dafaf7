package fault_test

import (
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

var _ = Describe("A timer", func() {
	It("keeps its time when all fetchers and the broker are killed", func(ctx SpecContext) {
		url, server := runBroker()
		w := env.World(ctx, world.Options{Broker: url})
		page := w.Origin.Page("/timed").Says("as before")
		cm := w.Create(ctx, "timed", world.Asking("mydata="+page.URL()), world.Annotated("x-kv8s.io/curl-refresh", "20s"))
		cm.EventuallyHasData(ctx, "mydata", "as before")
		w.EventuallyQuiet(ctx)

		stream, err := w.JetStream.Stream(ctx, pipeline.Requests)
		Expect(err).NotTo(HaveOccurred())
		timer, err := stream.GetLastMsgForSubject(ctx, pipeline.Key{Namespace: w.Namespace, Name: "timed", Key: "mydata"}.Timer())
		Expect(err).NotTo(HaveOccurred())
		at, err := time.Parse(time.RFC3339Nano, strings.TrimPrefix(timer.Header.Get("Nats-Schedule"), "@at "))
		Expect(err).NotTo(HaveOccurred())

		Expect(w.Fetcher().Kill()).To(Succeed())
		Expect(server.Kill()).To(Succeed())
		Expect(server.Again()).To(Succeed())
		w.Fetcher().Restart(ctx)
		Expect(time.Now()).To(BeTemporally("<", at), "all is back before the timer fires")

		Eventually(page.Hits).WithTimeout(time.Until(at) + 2*time.Second).WithPolling(10 * time.Millisecond).Should(Equal(2))
		Expect(time.Now()).To(BeTemporally("~", at, time.Second))
	})
})
