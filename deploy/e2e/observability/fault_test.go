package observability_test

import (
	"fmt"
	"net/http"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/origin"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
)

const (
	yes, no = 1.0, 0.0
	// objects is the number of objects that a fault affects.
	objects = 30
)

var _ = Describe("The dashboard shows within 30 s, with an alert,", func() {
	It("a slow host", func(ctx SpecContext) {
		w := env.World(ctx, world.Options{Flags: map[string][]string{world.Fetcher: {"--per-host=15"}}})
		b := watch(w)
		slow := origin.Start()
		DeferCleanup(slow.Close)
		w.Trust(slow) // closing it releases the requests
		for i := range objects {
			page := slow.Page(fmt.Sprintf("/%d", i)).Says("at last")
			page.Hold()
			w.Create(ctx, fmt.Sprintf("slow-%d", i), world.Asking("mydata="+page.URL()))
		}
		b.shows(ctx, "timeseries", "Hosts by state", "queued", BeNumerically(">", 0))
		b.alerts(ctx, "CurlMeThatHostsQueued")
		b.shows(ctx, "timeseries", "GET duration", "p95", BeNumerically(">", 5))
		b.shows(ctx, "timeseries", "Failed GETs by reason", "Timeout", BeNumerically(">", 0))
		b.alerts(ctx, "CurlMeThatGetsSlow")
		tells(w.Fetcher(), "CurlMeThatGetsSlow", `"reason":"Timeout"`, `"host":"localhost"`)
		w.Unfinished()
	})

	It("a dead host", func(ctx SpecContext) {
		w := env.World(ctx, world.Options{Flags: map[string][]string{world.Fetcher: {"--max-attempts=2"}}})
		b := watch(w)
		w.Begin(ctx, objects)
		dead := strings.Replace(env.FreeAddress(), "127.0.0.1", "localhost", 1)
		for i := range objects {
			w.Create(ctx, fmt.Sprintf("dead-%d", i), world.Asking(fmt.Sprintf("mydata=http://%s/%d", dead, i)))
		}
		b.shows(ctx, "timeseries", "Failed GETs by reason", "ConnectFailed", BeNumerically(">", 0))
		b.shows(ctx, "stat", "Failing GETs", "", BeNumerically(">", .1))
		b.shows(ctx, "timeseries", "Dead letters", "ConnectFailed", BeNumerically(">", 0))
		b.alerts(ctx, "CurlMeThatFailureRatio")
		b.alerts(ctx, "CurlMeThatDeadLetters")
		leads(ctx, w, "CurlMeThatFailureRatio", "failing --summary", MatchRegexp(`30 +failing +ConnectFailed +localhost`))
		b.draws(ctx, "Denials by rule", "Backpressure by cause", "Parked attempts by cause", "Reads by kind",
			"Sync before acknowledgement", "Annotation to data (p95)",
			"Watchers", "Longest time not Ready", "Applies by outcome", "Sidecars", "Leader of keepers") // no keeper runs here
		w.Unfinished()
	})

	It("a single key that is no longer refreshed", func(ctx SpecContext) {
		w := env.World(ctx, world.Options{Flags: map[string][]string{world.Watcher: {"--audit-interval=4s"}}})
		b := watch(w)
		w.Begin(ctx, objects)
		page, one := w.Fill(ctx, "one", "good", world.Annotated("x-kv8s.io/curl-refresh", "1s"))
		page.Fails(http.StatusGone)
		b.alerts(ctx, "CurlMeThatKeysStale")
		leads(ctx, w, "CurlMeThatKeysStale", "failing", MatchRegexp(`failing +BadStatus 410 .* one +mydata`))
		leads(ctx, w, "CurlMeThatKeysStale", "wants --stale", MatchRegexp(`one +mydata`))
		page.Says("good again")
		one.EventuallyHasData(ctx, "mydata", "good again")
		b.calms(ctx, "CurlMeThatKeysStale")
		w.Unfinished()
	})

	It("an unavailable NATS", func(ctx SpecContext) {
		w := env.World(ctx, world.Options{})
		b := watch(w)
		b.shows(ctx, "stat", "NATS", "", Equal(yes))
		w.NATS.Stop()
		b.shows(ctx, "stat", "NATS", "", Equal(no))
		for _, service := range world.Services() {
			b.shows(ctx, "timeseries", "NATS connections", service, Equal(no))
		}
		b.shows(ctx, "timeseries", "Pipeline exporter", "exporter", Equal(no))
		b.alerts(ctx, "CurlMeThatNATSDisconnected")
		b.alerts(ctx, "CurlMeThatPipelineBlind")
		tells(w.Writer(), "CurlMeThatNATSDisconnected", "no connection to NATS", w.Broker())
		leads(ctx, w, "CurlMeThatNATSDisconnected", "doctor", ContainSubstring("connection"))
		Expect(w.NATS.Start()).To(Succeed())
		b.calms(ctx, "CurlMeThatNATSDisconnected")
		b.calms(ctx, "CurlMeThatPipelineBlind")
	})
})
