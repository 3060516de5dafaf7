package fault_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
	"github.com/kv8s/curl-me-that/deploy/local/controlplane"
	"github.com/kv8s/curl-me-that/deploy/testkit/kubetest"
	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

// maxLines is the maximum number of lines that a service logs about an outage.
const maxLines = 60

var _ = Describe("An outage of the API server", func() {
	It("of 10 s stops no service and no fetch", func(ctx SpecContext) {
		plane := suitetest.Must(controlplane.Start(ctx, controlplane.Options{Progress: GinkgoWriter}))
		DeferCleanup(plane.Stop)
		cluster := suitetest.Must(world.OpenCluster(plane.Kubeconfig()))
		w := env.World(ctx, world.Options{Cluster: cluster})
		load := w.Begin(ctx, 50)
		load.EventuallyEnds(ctx, time.Minute)
		page, cm := w.Fill(ctx, "news", "before", world.Annotated("x-kv8s.io/curl-refresh", "2s"))
		said := lines(w)

		plane.KillAPIServer()
		page.Says("during")
		Consistently(func() bool { return allRun(w) }).WithTimeout(10*time.Second).WithPolling(time.Second).
			Should(BeTrue(), "services keep running")
		hits := page.Hits()
		Expect(plane.StartAPIServer(ctx)).To(Succeed())

		cm.EventuallyHasDataWithin(ctx, 45*time.Second, "mydata", "during")
		after := w.Origin.Page("/after").Says("after")
		w.Create(ctx, "after", world.Asking("mydata="+after.URL())).
			EventuallyHasDataWithin(ctx, 45*time.Second, "mydata", "after")
		Expect(hits).To(BeNumerically(">=", 3), "fetches continue meanwhile")
		Expect(lines(w)-said).To(BeNumerically("<", 3*maxLines+2*hits), "lines about the outage")
		for _, p := range load.Pages {
			Expect(p.Hits()).To(Equal(1), "satisfied keys are not fetched again")
		}
	})

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
		load.EventuallyEnds(ctx, 45*time.Second)
		Expect(asked).To(BeNumerically("<", 60+200), "requests while it refused")
		Expect(lines(w) - said).To(BeNumerically("<", 2*60+3*maxLines))
		Expect(load.MostHits()).To(Equal(1), "GETs of one page")
	},
		Entry("429", kubetest.Answer(apierrors.NewTooManyRequests("Too Many Requests", 1))),
		Entry("500", kubetest.Answer(apierrors.NewInternalError(errors.New("broken")))),
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

func allRun(w *world.World) bool {
	for _, name := range world.Services() {
		if !w.Service(name).Running() {
			return false
		}
	}
	return true
}

// lines returns the number of log lines of all services.
func lines(w *world.World) int {
	n := 0
	for _, name := range world.Services() {
		n += w.Service(name).Log.Count()
	}
	return n
}

var _ = Describe("A denied write", func() {
	It("for lack of permission succeeds within one audit interval after the permission is granted", func(ctx SpecContext) {
		const (
			keys     = 100
			interval = 8 * time.Second
			// asks is the number of GETs per key after which the next one comes four intervals later.
			asks = 4
			// limit is one audit interval, doubled for a busy machine.
			limit = 2 * interval
		)
		var writer *world.Account
		w := env.World(ctx, world.Options{
			Flags:       map[string][]string{world.Watcher: {"--audit-interval=" + interval.String()}},
			Kubeconfigs: env.Cluster.WriterAccount(&writer),
		})
		writer.Revoke(ctx)
		pages := w.Origin.Pages(keys)
		var all []*world.ConfigMap
		for n, page := range pages {
			all = append(all, w.Create(ctx, fmt.Sprintf("refused-%03d", n), world.Asking("mydata="+page.Says("granted").URL())))
		}
		for _, page := range pages {
			Eventually(page.Hits).WithTimeout(2*time.Minute).Should(BeNumerically(">=", asks), "fetched at growing intervals")
		}
		writer.Grant(ctx)
		granted := time.Now()
		for _, cm := range all {
			cm.EventuallyHasDataWithin(ctx, time.Until(granted.Add(limit)), "mydata", "granted")
		}
	})

	It("by an admission policy is reported by one Event", func(ctx SpecContext) {
		w := env.World(ctx, world.Audited(world.Options{}))
		lift := w.Deny(ctx, "mydata")
		page := w.Origin.Page("/denied").Says("at last")
		cm := w.Create(ctx, "denied", world.Asking("mydata="+page.URL()))
		cm.EventuallyHasEvents(ctx, "WriteFailed")
		note := cm.Events(ctx)[0].Note
		Expect(strings.ToLower(note)).To(ContainSubstring("refused"))
		Consistently(ctx, func() []string { return cm.Reasons(ctx) }).WithTimeout(2 * time.Second).
			WithPolling(200 * time.Millisecond).Should(ConsistOf("WriteFailed"))
		Expect(w.Writer().Metric(ctx, "curlmethat_writer_patches_total")).To(BeNumerically("<", 20), "no storm")
		lift(ctx)
		cm.EventuallyHasDataWithin(ctx, healLimit, "mydata", "at last")
		cm.EventuallyHasEvents(ctx, "WriteFailed", "Recovered")
	})
})

// apartLimit is how long a key of another tenant may take to be filled on a busy machine.
const apartLimit = 40 * time.Second

var _ = Describe("An ordinary key of another tenant is filled", func() {
	It("while the writer lacks permission in a namespace with too many results", func(ctx SpecContext) {
		const inHand = 16
		var account *world.Account
		w := env.World(ctx, world.Options{
			Tenants: 1, AckWait: shortAckWait, Kubeconfigs: env.Cluster.WriterAccount(&account),
		})
		account.In(ctx, w.Tenants[0].Namespace, world.WriterRules()...)
		consumer := suitetest.Must(w.JetStream.Consumer(ctx, pipeline.Results, pipeline.WriterConsumer))
		config := consumer.CachedInfo().Config
		config.MaxAckPending = inHand
		suitetest.Must(w.JetStream.UpdateConsumer(ctx, pipeline.Results, config))

		account.Revoke(ctx)
		pages := w.Origin.Pages(2 * inHand)
		for i, page := range pages {
			w.Create(ctx, fmt.Sprintf("refused-%d", i), world.Asking("mydata="+page.URL()))
		}
		Eventually(w.Origin.Hits).Should(BeNumerically(">=", len(pages)))
		page := w.Tenants[0].Origin.Page("/ordinary").Says("ordinary")
		w.Tenants[0].Create(ctx, "ordinary", world.Asking("mydata="+page.URL())).
			EventuallyHasDataWithin(ctx, apartLimit, "mydata", "ordinary")
		account.Grant(ctx)
		w.Unfinished()
	})
})
