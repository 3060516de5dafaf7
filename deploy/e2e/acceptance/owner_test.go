package acceptance_test

import (
	"context"
	"fmt"
	"os/exec"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	"github.com/kv8s/curl-me-that/proto/annotation"
	"github.com/kv8s/curl-me-that/proto/status"
)

var _ = Describe("A key whose owner the metadata does not prove", func() {
	It("is ours by its digest after more than ten managers wrote the object", func(ctx SpecContext) {
		w := env.World(ctx, world.Options{})
		DeferCleanup(w.History.AllBySpec)
		_, cm := w.Fill(ctx, "many", "A")
		many := func(value string) {
			for i := range 12 {
				suitetest.Must(w.Cluster.Client.CoreV1().ConfigMaps(w.Namespace).Patch(ctx, cm.Name, types.MergePatchType,
					fmt.Appendf(nil, `{"metadata":{"labels":{"l%d":%q}}}`, i, value),
					metav1.PatchOptions{FieldManager: fmt.Sprintf("manager-%d", i)}))
				w.EventuallyCaughtUp(ctx)
				w.History.BySpec(w.History.Latest(cm.Name))
			}
		}
		many("once")
		w.EventuallyQuiet(ctx)
		Expect(suitetest.Must(annotation.ParseOwners(cm.Get(ctx).ManagedFields)).Of("mydata").State).
			To(Equal(annotation.Unknown), "owner of the key")
		cm.HasEvents(ctx)

		By("being repaired although the entry of its editor was merged, too")
		cm.Put(ctx, "mydata", "by hand")
		many("again")
		cm.EventuallyHasData(ctx, "mydata", "A")
		many("more")
		cm.Unannotate(ctx, annotation.DefaultKey)
		cm.EventuallyLacks(ctx, "mydata")
		Expect(cm.Reasons(ctx)).NotTo(ContainElements("KeyExists"))
	})

	DescribeTable("is compared with the live value by", func(ctx SpecContext, fetch func(context.Context, *world.World,
		*world.ConfigMap),
	) {
		w := env.World(ctx, world.Options{})
		DeferCleanup(w.History.AllBySpec)
		_, cm := w.Fill(ctx, "trusted", "right")
		// The status of this object trusts the last write of the other manager.
		w.Watcher().ShouldStop(ctx)
		cm.Put(ctx, "mydata", "wrong")
		object := cm.Get(ctx)
		trusted := suitetest.Must(status.Parse(object.Annotations[annotation.StatusKey]))
		entry := trusted.Keys["mydata"]
		entry.CheckedFingerprint = suitetest.Must(annotation.ParseOwners(object.ManagedFields)).Of("mydata").Fingerprint
		trusted.Keys["mydata"] = entry
		cm.Annotate(ctx, annotation.StatusKey, trusted.String())
		w.Watcher().Restart(ctx)
		w.EventuallyQuiet(ctx)
		fetch(ctx, w, cm)
		cm.EventuallyHasData(ctx, "mydata", "right")
	},
		Entry("curl-now", func(ctx context.Context, _ *world.World, cm *world.ConfigMap) {
			cm.Annotate(ctx, "x-kv8s.io/curl-now", "now")
		}),
		Entry("refetch", func(ctx context.Context, w *world.World, cm *world.ConfigMap) {
			cm.Annotate(ctx, "x-kv8s.io/curl-refresh", "1h")
			w.EventuallyQuiet(ctx)
			out, err := exec.CommandContext(ctx, w.Program("curlctl"), "refetch", w.Namespace+"/"+cm.Name,
				"--nats-url="+w.Broker()).CombinedOutput()
			Expect(err).NotTo(HaveOccurred(), "%s", out)
		}),
	)
})
