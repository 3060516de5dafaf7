package fault_test

import (
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
