package watchers_test

import (
	"os"
	"os/exec"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
)

var _ = Describe("kubectl", func() {
	It("applies a Watcher or prints why not, waits for its condition, and lists it by its short name", func(ctx SpecContext) {
		h, path := open(ctx), world.Kubectl()
		folder := GinkgoT().TempDir()
		kubectl := func(args ...string) (string, error) {
			command := exec.CommandContext(ctx, path, append([]string{
				"--kubeconfig=" + h.Cluster.Kubeconfig, "--namespace=" + h.Namespace, "--cache-dir=" + folder,
			}, args...)...)
			out, err := command.CombinedOutput()
			return string(out), err
		}
		file := filepath.Join(folder, "errors.yaml")
		apply := func(spec string) (string, error) {
			GinkgoHelper()
			text := "apiVersion: watch.x-kv8s.io/v1alpha1\nkind: Watcher\nmetadata: {name: errors}\nspec: {" + spec + "}\n"
			Expect(os.WriteFile(file, []byte(text), 0o600)).To(Succeed())
			return kubectl("apply", "-f", file)
		}
		printed, err := apply(`interval: 5s, configData: {a: b}`)
		Expect(err).To(HaveOccurred())
		Expect(printed).To(ContainSubstring("The Watcher \"errors\" is invalid: spec.interval: Invalid value: \"5s\": " +
			"interval is a duration such as 10m or 1h30m, from 10s to 8760h\n"))

		page := h.Origin.Page("/errors").Says("errors")
		release := page.Hold()
		Expect(apply(`configData: {a: b}, sources: [{key: c, url: "` + page.URL() + `"}]`)).To(Equal("watcher.watch.x-kv8s.io/errors created\n"))
		Eventually(ctx, kubectl).WithArguments("get", "wat", "errors", "--no-headers").WithPolling(8 * polling).
			Should(MatchRegexp(`^errors +Unknown +Unknown +0/1 +errors-config `))
		release()
		Expect(kubectl("wait", "--for=condition=Ready", "watcher/errors", "--timeout=25s")).To(Equal("watcher.watch.x-kv8s.io/errors condition met\n"))
		Expect(kubectl("get", "watchers", "-o", "wide")).To(MatchRegexp(
			`^NAME +READY +FRESH +FETCHED +CONFIGMAP +AGE +REASON +CHANGED +PODS *\nerrors +True +True +1/1 +errors-config +\S+ +Ready `))
	})
})
