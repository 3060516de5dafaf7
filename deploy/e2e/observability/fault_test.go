package observability_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/origin"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
	"github.com/kv8s/curl-me-that/deploy/testkit/kubetest"
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

	It("an unavailable API server", func(ctx SpecContext) {
		g, through := env.Gateway()
		w := env.World(ctx, world.Options{Kubeconfigs: map[string]func(context.Context, string) string{
			world.Watcher: through, world.Writer: through,
		}})
		b := watch(w)
		var pages []*origin.Page
		for i := range 4 {
			page, _ := w.Fill(ctx, fmt.Sprint("cm-", i), "before", world.Annotated("x-kv8s.io/curl-refresh", "1s"))
			pages = append(pages, page)
		}
		b.shows(ctx, "stat", "API server", "", Equal(yes))
		g.Break(kubetest.All(kubetest.Answer(apierrors.NewServiceUnavailable("Service Unavailable"))))
		for _, page := range pages {
			page.Says("after") // otherwise there is nothing to write
		}
		b.shows(ctx, "stat", "API server", "", Equal(no))
		b.shows(ctx, "timeseries", "Availability and denied namespaces", "available", Equal(no))
		b.shows(ctx, "timeseries", "API server responses", "writer 503", BeNumerically(">", 0))
		b.shows(ctx, "timeseries", "Acknowledgements", "retry", BeNumerically(">", 0))
		b.alerts(ctx, "CurlMeThatAPIServerUnavailable")
		tells(w.Writer(), "CurlMeThatAPIServerUnavailable",
			"Kubernetes API server unavailable, holding results", "Service Unavailable")
		g.Heal()
		b.calms(ctx, "CurlMeThatAPIServerUnavailable")
		w.Unfinished() // refreshes continue
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

	It("a writer without permissions", func(ctx SpecContext) {
		var writer *world.Account
		w := env.World(ctx, world.Options{
			Flags:       map[string][]string{world.Watcher: {"--audit-interval=5s"}},
			Kubeconfigs: env.Cluster.WriterAccount(&writer),
		})
		b := watch(w)
		b.shows(ctx, "stat", "Writer permissions", "", Equal(no))
		writer.Revoke(ctx)
		page := w.Origin.Page("/right").Says("right")
		cm := w.Create(ctx, "denied", world.Asking("mydata="+page.URL()))
		b.shows(ctx, "stat", "Writer permissions", "", BeNumerically(">", 0))
		b.shows(ctx, "timeseries", "Patches by outcome", "forbidden", BeNumerically(">", 0))
		b.alerts(ctx, "CurlMeThatWriterForbidden")
		tells(w.Writer(), "CurlMeThatWriterForbidden", "the writer lacks a permission", w.Namespace)
		writer.Grant(ctx)
		cm.EventuallyHasDataWithin(ctx, calm, "mydata", "right")
		b.calms(ctx, "CurlMeThatWriterForbidden")
	})
})
