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

var _ = Describe("A key in a ConfigMap", func() {
	It("of another owner is kept until its owner removes it", func(ctx SpecContext) {
		w := env.World(ctx, world.Options{})
		page := w.Origin.Page("/ours").Says("ours")
		cm := w.Create(ctx, "theirs", world.Holding("mydata", "theirs"), world.Asking("mydata="+page.URL()))
		cm.EventuallyHasEvents(ctx, "KeyExists")
		cm.EventuallyReports(ctx, "mydata", "KeyExists")
		cm.Put(ctx, "mydata", "theirs as before")
		w.EventuallyQuiet(ctx)
		Expect(cm.Get(ctx).Data).To(HaveKeyWithValue("mydata", "theirs as before"))
		Expect(page.Hits()).To(BeZero())
		Expect(cm.Writes(ctx)).To(Equal(1), "the status about the existing key")
		Expect(cm.Status(ctx, "mydata").Why().Message).
			To(HavePrefix("key mydata already exists and is not managed by curl-me-that"))

		cm.Drop(ctx, "mydata")
		cm.EventuallyHasData(ctx, "mydata", "ours")
		cm.EventuallyReports(ctx, "mydata", "")
		w.EventuallyQuiet(ctx)
		Expect(cm.Writes(ctx)).To(Equal(2))
	})

	It("that was edited or removed by hand is repaired each time, with an Event", func(ctx SpecContext) {
		w := env.World(ctx, world.Options{})
		_, cm := w.Fill(ctx, "drift", "as asked", world.Holding("other", "theirs"))
		for i, change := range []func(){
			func() { cm.Put(ctx, "mydata", "changed by hand") },
			func() { cm.Put(ctx, "mydata", "once more") },
			func() { cm.Drop(ctx, "mydata") },
		} {
			change()
			cm.EventuallyHasData(ctx, "mydata", "as asked")
			w.EventuallyQuiet(ctx)
			Expect(cm.Reasons(ctx)).To(And(Not(BeEmpty()), HaveEach("Drifted")))
			Expect(cm.Writes(ctx)).To(Equal(2 + i))
		}
	})

	It("is pruned when its pair is removed, and other keys stay", func(ctx SpecContext) {
		w := env.World(ctx, world.Options{})
		a, b := w.Origin.Page("/a").Says("A"), w.Origin.Page("/b").Says("B")
		cm := w.Create(ctx, "pruned", world.Asking("a="+a.URL()+" b="+b.URL()), world.Holding("other", "theirs"))
		cm.EventuallyHasData(ctx, "a", "A")
		cm.EventuallyHasData(ctx, "b", "B")

		cm.Ask(ctx, "b="+b.URL())
		cm.EventuallyLacks(ctx, "a")
		w.EventuallyQuiet(ctx)
		Expect(cm.Get(ctx).Data).To(Equal(map[string]string{"b": "B", "other": "theirs"}))

		cm.Unannotate(ctx, annotation.DefaultKey)
		cm.EventuallyLacks(ctx, "b")
		w.EventuallyQuiet(ctx)
		left := cm.Get(ctx)
		Expect(left.Data).To(Equal(map[string]string{"other": "theirs"}))
		Expect(left.Annotations).NotTo(HaveKey(annotation.StatusKey))
		Expect(b.Hits()).To(Equal(1))
	})
})

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
		entry.CheckedOwner = suitetest.Must(annotation.ParseOwners(object.ManagedFields)).Of("mydata").Fingerprint
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
