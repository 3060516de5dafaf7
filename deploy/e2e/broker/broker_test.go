package broker_test

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
	"github.com/kv8s/curl-me-that/deploy/testkit/natstest"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

var _ = Describe("The system on an unreliable broker", func() {
	DescribeTable("loses nothing when the broker stops under load", func(
		ctx SpecContext, end func(*natstest.Server),
	) {
		w := env.World(ctx, world.Options{AckWait: shortAckWait})
		load := w.Begin(ctx, 200)
		const outages = 2
		for n := range outages {
			load.EventuallyFills(ctx, 40+80*n)
			end(w.NATS)
			// The load keeps adding ConfigMaps, so each service notices the outage.
			for _, name := range world.Services() {
				Eventually(func() int { return len(w.Service(name).Log.Matching("no connection to NATS")) }).Should(Equal(n + 1))
			}
			Expect(w.NATS.Start()).To(Succeed())
		}
		load.EventuallyEnds(ctx, 90*time.Second)
		for _, name := range world.Services() {
			Expect(w.Service(name).Log.Matching("no connection to NATS")).To(HaveLen(outages), "%s logs each outage once", name)
		}
	},
		Entry("after SIGTERM", (*natstest.Server).Stop),
		// The store is a slightly older copy, so messages that were acknowledged since are lost.
		Entry("after kill -9", func(server *natstest.Server) { Expect(server.Kill()).To(Succeed()) }),
	)

	It("fetches no satisfied key again after the broker lost its whole store", func(ctx SpecContext) {
		w := env.World(ctx, world.Options{})
		load := w.Begin(ctx, 60)
		load.EventuallyEnds(ctx, time.Minute)
		refreshed, cm := w.Fill(ctx, "refreshed", "before", world.Annotated("x-kv8s.io/curl-refresh", "2s"))
		failing := w.Create(ctx, "failing", world.Asking("mydata="+w.Origin.Page("/nothing").URL()))
		failing.EventuallyHasEvents(ctx, "BadStatus")
		w.EventuallyQuiet(ctx)

		Expect(w.NATS.Wipe()).To(Succeed())
		Expect(w.NATS.Start()).To(Succeed())

		page := w.Origin.Page("/new").Says("new")
		w.Create(ctx, "new", world.Asking("mydata="+page.URL())).EventuallyHasDataWithin(ctx, time.Minute, "mydata", "new")
		refreshed.Says("after")
		cm.EventuallyHasData(ctx, "mydata", "after")
		load.ConfigMaps[0].Put(ctx, "mydata", "changed by hand")
		load.ConfigMaps[0].EventuallyHasData(ctx, "mydata", "body 0")
		w.EventuallyQuiet(ctx)
		Expect(w.Stored(ctx, pipeline.Requests, "curl.want.>")).To(Equal(63), "wants are known again")
		for _, page := range load.Pages[1:] {
			Expect(page.Hits()).To(Equal(1))
		}
		for _, cm := range load.ConfigMaps[1:] {
			Expect(w.History.Writes(cm.Name)).To(Equal(1))
		}
		failing.HasEvents(ctx, "BadStatus")
	})

	DescribeTable("restores a lost stream or consumer:", func(
		ctx SpecContext, gets int, lose func(context.Context, jetstream.JetStream) error,
	) {
		w := env.World(ctx, world.Audited(world.Options{})) // the audit interval is also that of checks of the streams
		before, kept := w.Fill(ctx, "before", "before")
		after := w.Origin.Page("/after").Says("after")
		w.EventuallyQuiet(ctx)
		// On a busy machine, the audit may have requested a body again that was on its way.
		filling := before.Hits()
		Expect(lose(ctx, w.JetStream)).To(Succeed())
		w.Create(ctx, "new", world.Asking("mydata="+after.URL())).
			EventuallyHasDataWithin(ctx, 90*time.Second, "mydata", "after")
		kept.Ask(ctx, "mydata="+after.URL())
		kept.EventuallyHasDataWithin(ctx, 90*time.Second, "mydata", "after")
		Expect(before.Hits()-filling).To(BeNumerically("<=", gets), "GETs of held keys")
	},
		Entry("the stream of requests", 0, func(ctx context.Context, js jetstream.JetStream) error {
			return js.DeleteStream(ctx, pipeline.Requests)
		}),
		Entry("the streams of results and failures", 0, func(ctx context.Context, js jetstream.JetStream) error {
			return errors.Join(js.DeleteStream(ctx, pipeline.Results), js.DeleteStream(ctx, pipeline.Failures))
		}),
		Entry("the consumer of the fetchers, with one more GET per key", 1,
			func(ctx context.Context, js jetstream.JetStream) error {
				return js.DeleteConsumer(ctx, pipeline.Requests, pipeline.FetcherConsumer)
			}),
		Entry("the consumer of the writers", 0, func(ctx context.Context, js jetstream.JetStream) error {
			return js.DeleteConsumer(ctx, pipeline.Results, pipeline.WriterConsumer)
		}),
		Entry("all messages in the stream of requests", 0, func(ctx context.Context, js jetstream.JetStream) error {
			stream, err := js.Stream(ctx, pipeline.Requests)
			if err != nil {
				return err
			}
			return stream.Purge(ctx)
		}),
	)
})
