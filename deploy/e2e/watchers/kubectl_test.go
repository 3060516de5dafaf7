package watchers_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
)

// kubectl runs the real one in a namespace.
type kubectl struct{ path, namespace, folder string }

func kubectlIn(namespace string) kubectl {
	GinkgoHelper()
	return kubectl{world.Kubectl(), namespace, GinkgoT().TempDir()}
}

// run returns all that is printed.
func (k kubectl) run(ctx context.Context, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, k.path, append([]string{
		"--kubeconfig=" + env.Cluster.Kubeconfig, "--namespace=" + k.namespace, "--cache-dir=" + k.folder,
	}, args...)...).CombinedOutput()
	return string(out), err
}

// named is a Watcher to be, with its spec in YAML.
type named struct{ name, spec string }

// apply applies Watchers by one file.
func (k kubectl) apply(ctx context.Context, watchers ...named) (string, error) {
	GinkgoHelper()
	var text strings.Builder
	for _, w := range watchers {
		fmt.Fprintf(&text, "---\napiVersion: watch.x-kv8s.io/v1alpha1\nkind: Watcher\nmetadata: {name: %s}\nspec: {%s}\n", w.name, w.spec)
	}
	file := filepath.Join(k.folder, "watchers.yaml")
	Expect(os.WriteFile(file, []byte(text.String()), 0o600)).To(Succeed())
	return k.run(ctx, "apply", "-f", file)
}

var _ = Describe("kubectl", func() {
	It("applies a Watcher or prints why not, waits for its condition, and lists it by its short name", func(ctx SpecContext) {
		h := open(ctx)
		k := kubectlIn(h.Namespace)
		printed, err := k.apply(ctx, named{"errors", `interval: 5s, configData: {a: b}`})
		Expect(err).To(HaveOccurred())
		Expect(printed).To(ContainSubstring("The Watcher \"errors\" is invalid: spec.interval: Invalid value: \"5s\": " +
			"interval is a duration such as 10m or 1h30m, from 10s to 8760h\n"))

		page := h.Origin.Page("/errors").Says("errors")
		release := page.Hold()
		Expect(k.apply(ctx, named{"errors", `configData: {a: b}, sources: [{key: c, url: "` + page.URL() + `"}]`})).
			To(Equal("watcher.watch.x-kv8s.io/errors created\n"))
		Eventually(ctx, k.run).WithArguments("get", "wat", "errors", "--no-headers").WithPolling(8 * polling).
			Should(MatchRegexp(`^errors +Unknown +Unknown +0/1 +errors-config `))
		release()
		Expect(k.run(ctx, "wait", "--for=condition=Ready", "watcher/errors", "--timeout=25s")).To(Equal("watcher.watch.x-kv8s.io/errors condition met\n"))
		Expect(k.run(ctx, "get", "watchers", "-o", "wide")).To(MatchRegexp(
			`^NAME +READY +FRESH +FETCHED +CONFIGMAP +AGE +REASON +CHANGED +PODS *\nerrors +True +True +1/1 +errors-config +\S+ +Ready `))
		printed, err = k.apply(ctx, named{"errors", `configData: {a: b}, target: {name: other}`})
		Expect(err).To(HaveOccurred())
		Expect(printed).To(MatchRegexp(`The Watcher "errors" is invalid: .*target.name cannot be changed, added or removed`))
	})
})
