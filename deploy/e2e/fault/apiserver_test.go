package fault_test

import (
	"fmt"
	"net/http"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
	"github.com/kv8s/curl-me-that/deploy/testkit/kubetest"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

var _ = Describe("An outage of the API server", func() {
	DescribeTable("with an error for every request stops no service:", func(ctx SpecContext, fault kubetest.Fault) {
		g, o := behindGateway(world.Watcher, world.Writer)
		w := env.World(ctx, o)
		load := w.Begin(ctx, 60)
		load.EventuallyFills(ctx, 20)
		said := lines(w)
		g.Break(kubetest.All(fault))
		Consistently(func() bool { return allRun(w) }).WithTimeout(5*time.Second).WithPolling(time.Second).
			Should(BeTrue(), "services keep running")
		asked := g.Requests(http.MethodPatch) + g.Requests(http.MethodGet)
		g.Heal()
		load.EventuallyEnds(ctx, 90*time.Second)
		Expect(asked).To(BeNumerically("<", 60+200), "requests while it refused")
		Expect(lines(w) - said).To(BeNumerically("<", 2*60+3*maxLines))
		Expect(load.MostHits()).To(Equal(1), "GETs of one page")
	},
		Entry("503", kubetest.Answer(apierrors.NewServiceUnavailable("Service Unavailable"))),
		Entry("no response", kubetest.Fault(kubetest.Silence)),
	)

	It("that expires a watch does not hide deleted objects", func(ctx SpecContext) {
		g, o := behindGateway(world.Watcher)
		w := env.World(ctx, o)
		page := w.Origin.Page("/new").Says("new")
		_, gone := w.Fill(ctx, "gone", "refreshed", world.Annotated("x-kv8s.io/curl-refresh", "1s"))

		g.Break(func(r *http.Request) kubetest.Fault {
			if r.URL.Query().Get("watch") == "true" {
				return kubetest.Answer(apierrors.NewResourceExpired("too old"))
			}
			return kubetest.Silence
		})
		gone.Delete(ctx)
		cm := w.Create(ctx, "new", world.Asking("mydata="+page.URL()))
		g.Heal()
		cm.EventuallyHasData(ctx, "mydata", "new")
		Eventually(func() int { return w.Stored(ctx, pipeline.Requests, "curl.timer.>") }).
			Should(BeZero(), "no refresh of deleted objects")
	})
})

var _ = It("A denied write succeeds within two audit intervals after the permission is granted", func(ctx SpecContext) {
	const (
		interval = 3 * time.Second
		keys     = 10 // too many to be probed one by one in two intervals
		asks     = 4  // GETs per key after which the pause before the next one is longer than two intervals
	)
	var writer *world.Account
	w := env.World(ctx, world.Options{
		Flags:       map[string][]string{world.Watcher: {"--audit-interval=" + interval.String()}},
		Kubeconfigs: env.Cluster.WriterAccount(&writer),
	})
	writer.Revoke(ctx)
	var denied []*world.ConfigMap
	pages := w.Origin.Pages(keys)
	for n, page := range pages {
		denied = append(denied, w.Create(ctx, fmt.Sprint("denied-", n), world.Asking("mydata="+page.Says("granted").URL())))
	}
	for _, page := range pages {
		Eventually(page.Hits).WithTimeout(2 * time.Minute).Should(BeNumerically(">=", asks))
	}
	w.EventuallyQuiet(ctx) // a result on its way would be written without the audit
	writer.Grant(ctx)
	granted := time.Now()
	for _, cm := range denied {
		cm.Within(time.Until(granted.Add(2*interval))).EventuallyHasData(ctx, "mydata", "granted")
	}
})
