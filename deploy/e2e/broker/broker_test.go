// Package broker stops and damages the broker, and checks that the system keeps its promises.
package broker_test

import (
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
	"github.com/kv8s/curl-me-that/deploy/testkit/natstest"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

func TestBroker(t *testing.T) { world.Run(t, "Broker") }

var env *world.Environment

var _ = BeforeSuite(func() { env = world.Open() })

const refreshKey = "x-kv8s.io/curl-refresh"

const (
	// shortAckWait replaces the default AckWait of 30 s, after which the messages of a killed service are
	// redelivered.
	shortAckWait = 3 * time.Second
	// aWhile is how long specs watch that something does not happen.
	aWhile = time.Second
)

var _ = Describe("The system on an unreliable broker", func() {
	It("loses nothing when the broker stops under load, after SIGTERM and after kill -9", func(ctx SpecContext) {
		w := env.World(ctx, world.Options{AckWait: shortAckWait})
		load := w.Begin(ctx, 120)
		outages := []func(*natstest.Server){
			(*natstest.Server).Stop,
			// The store is a slightly older copy, so messages that were acknowledged since are lost.
			func(server *natstest.Server) { Expect(server.Kill()).To(Succeed()) },
		}
		for n, end := range outages {
			load.EventuallyFills(ctx, 20+40*n)
			end(w.NATS)
			// The load keeps adding ConfigMaps, so each service notices the outage.
			for _, name := range world.Services() {
				Eventually(func() int { return len(w.Service(name).Log.Matching("no connection to NATS")) }).Should(Equal(n + 1))
			}
			Expect(w.NATS.Start()).To(Succeed())
		}
		load.EventuallyEnds(ctx, 3*time.Minute)
		for _, name := range world.Services() {
			Expect(w.Service(name).Log.Matching("no connection to NATS")).
				To(HaveLen(len(outages)), "%s logs each outage once", name)
		}
	})

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
		w.Create(ctx, "new", world.Asking("mydata="+page.URL())).Within(time.Minute).EventuallyHasData(ctx, "mydata", "new")
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
})
