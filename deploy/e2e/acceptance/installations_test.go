package acceptance_test

import (
	"context"
	"fmt"
	"os/exec"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	"github.com/kv8s/curl-me-that/proto/annotation"
	"github.com/kv8s/curl-me-that/proto/status"
)

var _ = Describe("A second installation that reads another annotation", func() {
	const other = "other.example/curl"

	// begin starts both installations. The first one has filled the key mydata of a ConfigMap.
	begin := func(ctx context.Context) (w *world.World, cm *world.ConfigMap, second []*world.Service) {
		w = env.World(ctx, world.Audited(world.Options{}))
		_, cm = w.Fill(ctx, "first", "A")
		DeferCleanup(w.History.AllBySpec)
		second = w.Beside(ctx, other)
		Eventually(second[0].Log.Matching).WithArguments("leaving keys alone").Should(HaveLen(1))
		return w, cm, second
	}
	curlctl := func(ctx context.Context, w *world.World, args ...string) string {
		args = append(args, "--kubeconfig="+w.Cluster.Kubeconfig, "--namespace="+w.Namespace)
		out, err := exec.CommandContext(ctx, w.Program("curlctl"), args...).CombinedOutput()
		Expect(err).To(Or(BeNil(), MatchError("exit status 7")), "%s", out)
		return strings.Join(strings.Fields(string(out)), " ")
	}

	It("takes a key over once only its annotation asks, and others by curlctl hand-over", func(ctx SpecContext) {
		w, cm, _ := begin(ctx)
		page := w.Origin.Page("/first")
		w.Watcher().ShouldStop(ctx)
		cm.Patch(ctx, map[string]any{"metadata": map[string]any{"annotations": map[string]any{
			annotation.DefaultKey: nil, other: "mydata=" + page.URL(),
		}}})
		Eventually(ctx, func() string { return cm.Status(ctx, "mydata").Annotation }).Should(Equal(other))
		Expect(cm.Get(ctx).Data).To(HaveKeyWithValue("mydata", "A"))

		old := status.Status{Keys: map[string]status.Entry{"old": {URL: page.URL(), SHA256: cm.Status(ctx, "mydata").SHA256}}}
		left := w.Create(ctx, "left", world.Holding("old", "value"), world.Annotated(annotation.StatusKey, old.String()))
		Expect(curlctl(ctx, w, "doctor", "--nats-url="+w.Broker(), "--annotation-keys="+other)).To(ContainSubstring(
			"1 key of annotation x-kv8s.io/curl-me-that, which stay as they are: " + w.Namespace + "/left/old"))
		Expect(curlctl(ctx, w, "hand-over", "--from="+annotation.DefaultKey, "--to="+other)).To(Equal("Handed over 1 key."))
		Eventually(ctx, func() map[string]string { return left.Get(ctx).Annotations }).
			ShouldNot(HaveKey(annotation.StatusKey), "the second installation removed the entry")
		Expect(left.Get(ctx).Data).To(HaveKeyWithValue("old", "value"), "nobody wrote this value for the URL")
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
		entry.Drift = suitetest.Must(annotation.ParseOwners(object.ManagedFields)).Of("mydata").Fingerprint
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

var _ = Describe("A suspended ConfigMap", func() {
	It("becomes an ordinary one by one edit that removes the annotation and the status", func(ctx SpecContext) {
		w := env.World(ctx, world.Options{})
		_, cm := w.Fill(ctx, "kept", "A")
		cm.Patch(ctx, map[string]any{"metadata": map[string]any{"annotations": map[string]any{
			annotation.DefaultKey: nil, annotation.StatusKey: nil,
		}}})
		w.EventuallyQuiet(ctx)
		Expect(cm.Get(ctx).Data).To(Equal(map[string]string{"mydata": "A"}))
		Expect(cm.Writes(ctx)).To(Equal(1))
		cm.HasEvents(ctx)
	})
})
