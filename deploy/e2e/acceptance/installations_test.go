package acceptance_test

import (
	"context"
	"os/exec"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
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
		Eventually(second[0].Log.Matching).WithArguments("ignoring keys of annotations").Should(HaveLen(1))
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
