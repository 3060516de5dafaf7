package fault_test

import (
	"context"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
	"github.com/kv8s/curl-me-that/proto/pipeline"
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
		page := w.Tenants[0].Origin.Page("/ordinary").Says("ordinary")
		w.Tenants[0].Create(ctx, "ordinary", world.Asking("mydata="+page.URL())).
			EventuallyHasDataWithin(ctx, apartLimit, "mydata", "ordinary")
		rights.Grant(ctx)
		w.Unfinished()
	})
})
