package manifests_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/proto/suitetest"
)

var _ = Describe("make manifests", func() {
	It("writes manifests with the images of a registry", func(ctx SpecContext) {
		dist := GinkgoT().TempDir()
		cmd := exec.CommandContext(ctx, "../../tools/install", "manifests")
		cmd.Env = append(os.Environ(), "REGISTRY=registry.example.com/me", "VERSION=1", "DIST="+dist)
		cmd.Stdout, cmd.Stderr = GinkgoWriter, GinkgoWriter
		Expect(cmd.Run()).To(Succeed())
		for _, name := range []string{installed, small, watchers, sidecars} {
			text := suitetest.Must(os.ReadFile(filepath.Join(dist, name)))
			images := regexp.MustCompile(`(?m)image: (\S+)$`).FindAllStringSubmatch(string(text), -1)
			Expect(images).NotTo(BeEmpty())
			for _, image := range images {
				Expect(image[1]).To(MatchRegexp(`^(registry\.example\.com/me/[a-z]+:1|nats:[\d.]+)$`), name)
			}
		}
	})
})
