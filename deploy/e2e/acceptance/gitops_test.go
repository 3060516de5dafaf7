package acceptance_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
	"github.com/kv8s/curl-me-that/proto/annotation"
	"github.com/kv8s/curl-me-that/proto/suitetest"
)

// These specs hold the table in deploy/docs/gitops.md.
var _ = Describe("A ConfigMap in Git", func() {
	var w *world.World
	var url string
	BeforeEach(func(ctx SpecContext) {
		w = env.World(ctx, world.Options{})
		url = w.Origin.Page("/hello").Says("fetched").URL()
	})
	// submit runs kubectl with the manifest, with data in flow style, and returns its errors.
	submit := func(ctx context.Context, data string, args ...string) (string, error) {
		GinkgoHelper()
		args = append(slices.Clone(args), "--filename=-", "--output=json", "--namespace="+w.Namespace)
		cmd := exec.CommandContext(ctx, world.Kubectl(), args...)
		cmd.Env = []string{"KUBECONFIG=" + w.Cluster.Kubeconfig, "HOME=" + GinkgoT().TempDir()}
		cmd.Stdin = strings.NewReader(fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: git, annotations: "+
			"{%s: %q}}\n%s\n",
			annotation.DefaultKey, "page="+url, data))
		var complaint strings.Builder
		cmd.Stderr = &complaint
		out, err := cmd.Output()
		if err == nil {
			object := &corev1.ConfigMap{}
			Expect(json.Unmarshal(out, object)).To(Succeed(), "%s", out)
			w.History.BySpec(object)
		}
		return complaint.String(), err
	}
	filled := func(ctx context.Context, args ...string) *world.ConfigMap {
		GinkgoHelper()
		suitetest.Must(submit(ctx, "", args...))
		cm := w.Named("git")
		cm.EventuallyHasData(ctx, "page", "fetched")
		w.EventuallyQuiet(ctx)
		return cm
	}
	client := []string{"apply"}
	server := []string{"apply", "--server-side"}
	forced := []string{"apply", "--server-side", "--force-conflicts"}

	DescribeTable("that leaves data out changes nothing when it is applied again", func(ctx SpecContext, args []string) {
		cm := filled(ctx, args...)
		was := cm.Get(ctx)
		suitetest.Must(submit(ctx, "", args...))
		w.EventuallyQuiet(ctx)
		Expect(cm.Get(ctx)).To(And(
			HaveField("Data", was.Data), HaveField("Annotations", was.Annotations)))
		cm.Tells(ctx)
	}, Entry("by the client", client), Entry("by the server", server), Entry("with force", forced))

	It("with a value of the key keeps that value if it was applied first", func(ctx SpecContext) {
		suitetest.Must(submit(ctx, "data: {page: from Git}", client...))
		w.Named("git").EventuallyTells(ctx, "KeyExists")
		w.EventuallyQuiet(ctx)
		Expect(w.Named("git").Get(ctx).Data).To(HaveKeyWithValue("page", "from Git"))
	})

	DescribeTable("with another value of a fetched key is repaired", func(ctx SpecContext, args []string) {
		cm := filled(ctx, args...)
		suitetest.Must(submit(ctx, "data: {page: from Git}", args...))
		cm.EventuallyTells(ctx, "Drifted")
		cm.EventuallyHasData(ctx, "page", "fetched")
	}, Entry("by the client", client), Entry("with force", forced))

	It("with another value of a fetched key is a conflict for the server", func(ctx SpecContext) {
		cm := filled(ctx, server...)
		was := cm.Get(ctx).ResourceVersion
		complaint, err := submit(ctx, "data: {page: from Git}", server...)
		Expect(err).To(HaveOccurred())
		Expect(complaint).To(ContainSubstring("conflict"))
		Expect(cm.Get(ctx).ResourceVersion).To(Equal(was))
	})

	It("is filled again after kubectl replace", func(ctx SpecContext) {
		cm := filled(ctx, client...)
		suitetest.Must(submit(ctx, "", "replace"))
		cm.EventuallyHasData(ctx, "page", "fetched")
		w.EventuallyQuiet(ctx)
	})
})
