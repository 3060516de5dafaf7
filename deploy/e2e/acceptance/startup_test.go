package acceptance_test

import (
	"os"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
)

var _ = Describe("A service that starts before the API server", func() {
	It("waits for it, with few log lines", func(ctx SpecContext) {
		w := env.World(ctx, world.Options{Without: world.Services()})
		kubeconfig := filepath.Join(GinkgoT().TempDir(), "kubeconfig")
		Expect(os.WriteFile(kubeconfig, []byte(`{"apiVersion":"v1","kind":"Config","current-context":"c",
			"clusters":[{"name":"c","cluster":{"server":"http://`+env.FreeAddress()+`"}}],
			"contexts":[{"name":"c","context":{"cluster":"c"}}]}`), 0o600)).To(Succeed())
		for _, name := range []string{world.Watcher, world.Writer} {
			s := w.Launch(ctx, name, "--kubeconfig="+kubeconfig)
			Eventually(func() error { return s.Ready(ctx) }).Should(MatchError(ContainSubstring("not ready")))
			Consistently(s.Running).WithTimeout(aWhile).Should(BeTrue())
			Expect(s.Log.Count()).To(BeNumerically("<", 20))
			s.ShouldStop(ctx)
		}
		w.Unfinished()
	})
})
