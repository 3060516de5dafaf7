package acceptance_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
	"github.com/kv8s/curl-me-that/proto/suitetest"
)

var _ = Describe("kubectl", func() {
	It("finds curlctl as a plugin and completes its arguments with live names", func(ctx SpecContext) {
		kubectl := filepath.Join(os.Getenv("KUBEBUILDER_ASSETS"), "kubectl")
		if _, err := os.Stat(kubectl); err != nil {
			if kubectl, err = exec.LookPath("kubectl"); err != nil {
				Skip("no kubectl found: `make test-acceptance` has one if it starts an API server")
			}
		}
		w := env.World(ctx, world.Options{})
		w.Create(ctx, "failing", world.Asking("mydata="+w.Origin.Page("/nothing").URL())).EventuallyTells(ctx, "BadStatus")

		By("installing it as the Makefile does")
		plugins := GinkgoT().TempDir()
		for name, file := range map[string]string{
			"kubectl-curl_me_that":          w.Program("curlctl"),
			"kubectl_complete-curl_me_that": filepath.Join("..", "..", "curlctl", "kubectl", "kubectl_complete-curl_me_that"),
		} {
			path := suitetest.Must(filepath.Abs(file))
			Expect(os.Symlink(path, filepath.Join(plugins, name))).To(Succeed())
		}
		Expect(os.Symlink(kubectl, filepath.Join(plugins, "kubectl"))).To(Succeed())
		run := func(ctx context.Context, args ...string) string {
			GinkgoHelper()
			cmd := exec.CommandContext(ctx, kubectl, args...)
			cmd.Env = append(os.Environ(), "PATH="+plugins+":"+os.Getenv("PATH"), "KUBECONFIG="+w.Cluster.Kubeconfig,
				"CURLMETHAT_NATS_URL="+w.NATS.URL())
			var said bytes.Buffer
			cmd.Stderr = &said
			out, err := cmd.Output()
			Expect(err).NotTo(HaveOccurred(), "kubectl %v: %s", args, &said)
			return string(out)
		}
		Expect(run(ctx, "plugin", "list", "--name-only")).To(ContainSubstring("kubectl-curl_me_that"))
		Expect(run(ctx, "curl-me-that", "status")).To(ContainSubstring("1 in the last hour, 1 kept"))
		Expect(run(ctx, "curl-me-that", "status", w.Namespace+"/failing")).To(ContainSubstring("gave up"))
		Expect(run(ctx, "curl-me-that", "--help")).To(ContainSubstring("kubectl curl-me-that [command]"))
		Expect(run(ctx, "__complete", "curl-me-that", "fail")).To(ContainSubstring("failures"))
		Expect(run(ctx, "__complete", "curl-me-that", "failures", "show", "")).
			To(ContainSubstring("1\tBadStatus " + w.Namespace + "/failing"))
	})
})
