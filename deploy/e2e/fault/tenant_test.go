package fault_test

import (
	"context"
	"fmt"
	"net/http"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/origin"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
	"github.com/kv8s/curl-me-that/proto/annotation"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/status"
	"github.com/kv8s/curl-me-that/proto/suitetest"
)

// apartLimit is how long an ordinary key of another tenant may wait, on a
// machine that is busy with other tests.
const apartLimit = 40 * time.Second

var _ = Describe("An ordinary key of another tenant is filled", func() {
	It("while a namespace that the writer may not write to has too many results", func(ctx SpecContext) {
		const inHand = 16
		var rights *world.Account
		w := env.World(ctx, world.Options{
			Tenants: 1, AckWait: shortAckWait,
			Kubeconfigs: map[string]func(context.Context, string) string{
				world.Writer: func(ctx context.Context, namespace string) string {
					rights = env.Cluster.Account(ctx, namespace, world.Writer, world.WriterRules()...)
					return rights.Kubeconfig
				},
			},
		})
		rights.In(ctx, w.Tenants[0].Namespace, world.WriterRules()...)
		consumer := suitetest.Must(w.JetStream.Consumer(ctx, pipeline.Results, pipeline.WriterConsumer))
		config := consumer.CachedInfo().Config
		config.MaxAckPending = inHand
		suitetest.Must(w.JetStream.UpdateConsumer(ctx, pipeline.Results, config))

		rights.Revoke(ctx)
		pages := w.Origin.Pages(2 * inHand)
		for i, page := range pages {
			w.Create(ctx, fmt.Sprintf("refused-%d", i), world.Asking("mydata="+page.URL()))
		}
		Eventually(w.Origin.Hits).Should(BeNumerically(">=", len(pages)))
		expectOrdinary(ctx, w.Tenants[0], w.Tenants[0].Origin.Page("/ordinary"))
		rights.Grant(ctx)
		w.Unfinished()
	})

	It("and emptied beside a hundred statuses that a user has written", func(ctx SpecContext) {
		w := env.World(ctx, world.Options{Tenants: 1})
		tenant := w.Tenants[0]
		slowest := func(round string) (slowest time.Duration) {
			for i, page := range tenant.Origin.Pages(5) {
				began := time.Now()
				cm := tenant.Create(ctx, fmt.Sprintf("%s-%d", round, i), world.Asking("mydata="+page.Says("ordinary").URL()))
				cm.EventuallyHasDataWithin(ctx, apartLimit, "mydata", "ordinary")
				slowest = max(slowest, time.Since(began))
				cm.Annotate(ctx, annotation.DefaultKey, "other="+page.URL())
				cm.EventuallyLacks(ctx, "mydata")
			}
			return slowest
		}
		alone := slowest("alone")
		forged := func(entries int) world.Trait {
			text := make([]byte, 0, status.MaxBytes)
			for i := range entries {
				text = fmt.Appendf(text, `,"%04x":{}`, i)
			}
			return world.Annotated(annotation.StatusKey, "{"+string(text[1:])+"}")
		}
		for i := range 50 {
			w.Create(ctx, fmt.Sprintf("many-%d", i), forged(2*annotation.MaxPairs))
			w.Create(ctx, fmt.Sprintf("too-many-%d", i), forged(21_000))
		}
		beside := slowest("beside")
		GinkgoWriter.Printf("slowest key: %v alone, %v beside a hundred forged statuses\n", alone, beside)
		Expect(beside).To(BeNumerically("<", 2*alone+2*time.Second))
		Expect(w.Watcher().Metric(ctx, "curlmethat_watcher_held_back_removals")).To(BeZero())
	})

	It("from a host that hangs for many keys of a namespace", func(ctx SpecContext) {
		w := env.World(ctx, world.Options{Tenants: 1, Flags: hanging()})
		const keys = 100
		for i, page := range w.Origin.Pages(keys) {
			release := page.Hold()
			defer release()
			w.Create(ctx, fmt.Sprintf("hangs-%d", i), world.Asking("mydata="+page.URL()))
		}
		Eventually(func() float64 { return w.Fetcher().Metric(ctx, "curlmethat_fetcher_parked_total") }).
			WithTimeout(healLimit).Should(BeNumerically(">", keys/2), "keys parked for the host")
		expectOrdinary(ctx, w.Tenants[0], w.Origin.Page("/ordinary"))
		w.Unfinished()
	})

	It("from a host that redirects many keys to a host that asks for a pause", func(ctx SpecContext) {
		w := env.World(ctx, world.Options{Tenants: 1})
		other := origin.Start()
		DeferCleanup(other.Close)
		busy := other.Page("/busy").Fails(http.StatusTooManyRequests).With("Retry-After", "3600")
		// Another name counts as another host, even on the same machine.
		page := w.Origin.Page("/moved").Fails(http.StatusFound).With("Location", "http://"+other.PageByAddress("/busy"))
		const keys = 30
		for i := range keys {
			w.Create(ctx, fmt.Sprintf("moved-%d", i), world.Asking(fmt.Sprintf("mydata=%s?%d", page.URL(), i)))
		}
		Eventually(busy.Hits).Should(Equal(keys))
		w.EventuallyQuiet(ctx)
		expectOrdinary(ctx, w.Tenants[0], w.Origin.Page("/ordinary"))
		Expect(w.Fetcher().Metric(ctx, "curlmethat_fetcher_parked_total", `cause="host_slowed"`)).
			To(BeZero(), "keys parked for a host that asked for no pause")
	})

	It("from a host with a URL that asks for a pause", func(ctx SpecContext) {
		w := env.World(ctx, world.Options{Tenants: 1})
		busy := w.Origin.Page("/busy").Fails(http.StatusTooManyRequests).With("Retry-After", "3600")
		w.Create(ctx, "busy", world.Asking("mydata="+busy.URL()))
		Eventually(busy.Hits).Should(Equal(1))
		w.EventuallyQuiet(ctx)
		expectOrdinary(ctx, w.Tenants[0], w.Origin.Page("/ordinary"))
	})
})

// expectOrdinary requests one page for a tenant and expects it within apartLimit.
func expectOrdinary(ctx context.Context, tenant *world.World, page *origin.Page) {
	GinkgoHelper()
	cm := tenant.Create(ctx, "ordinary", world.Asking("mydata="+page.Says("ordinary").URL()))
	cm.EventuallyHasDataWithin(ctx, apartLimit, "mydata", "ordinary")
}
