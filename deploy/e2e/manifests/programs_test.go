package manifests_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
	"github.com/kv8s/curl-me-that/proto/annotation"
)

// ours matches an image of one of our programs.
var ours = regexp.MustCompile(`^ghcr\.io/kv8s/curl-me-that/([a-z]+):`)

var _ = Describe("The programs in the chart", func() {
	DescribeTable("know all their flags", func(ctx SpecContext, name string) {
		for of, pod := range podTemplates(rendered[name]) {
			container := pod.Spec.Containers[0]
			image := ours.FindStringSubmatch(container.Image)
			if image == nil {
				Expect(of).To(HavePrefix("StatefulSet/"), "%s has the image %s", of, container.Image)
				continue
			}
			program := filepath.Join(bin(), image[1])
			Expect(program).To(BeAnExistingFile(), "run `make build`")
			// Flags are parsed in order, and --help exits before any work starts.
			said, err := exec.CommandContext(ctx, program, append(container.Args, "--help")...).CombinedOutput()
			Expect(err).NotTo(HaveOccurred(), "%s: %s", of, said)
		}
	}, values(additional()...))

	It("protect the same namespaces as by default", func() {
		const flag = "--protected-namespaces="
		found := 0
		for of, pod := range podTemplates(rendered["default"]) {
			for _, arg := range pod.Spec.Containers[0].Args {
				if value, ok := strings.CutPrefix(arg, flag); ok {
					Expect(strings.Split(value, ",")).To(Equal(annotation.DefaultProtected()), of)
					found++
				}
			}
		}
		Expect(found).To(Equal(2), "watcher and writer")
	})

	DescribeTable("have exactly the permissions that they were tested with", func(name, namespace string) {
		roles := map[string][]rbacv1.PolicyRule{}
		for _, o := range rendered[name] {
			switch o.GetKind() {
			case "ClusterRole":
				roles[o.GetName()] = convert[rbacv1.ClusterRole](o).Rules
			case "Role":
				if o.GetNamespace() == namespace {
					roles[o.GetName()] = convert[rbacv1.Role](o).Rules
				}
			}
		}
		Expect(roles).To(HaveKeyWithValue("curl-me-that-writer", world.RulesOf(world.Writer)))
		Expect(roles).To(HaveKeyWithValue("curl-me-that-watcher", world.RulesOf(world.Watcher)))
		Expect(roles).NotTo(HaveKey("curl-me-that-fetcher"))
		if name == "keeper" {
			Expect(roles).To(HaveKeyWithValue("curl-me-that-keeper", world.RulesOf(world.Keeper)))
		} else {
			Expect(roles).NotTo(HaveKey("curl-me-that-keeper"))
		}
	}, Entry("in all namespaces", "default", "curl-me-that"), Entry("with Watchers", "keeper", "curl-me-that"),
		Entry("in a listed namespace", "namespaced", "team-a"), Entry("in another one", "namespaced", "team-b"))
})

// bin returns the folder of the built programs.
func bin() string {
	if dir := os.Getenv("CURLMETHAT_BIN"); dir != "" {
		return dir
	}
	return filepath.Join("..", "..", "..", "bin")
}
