package compose_test

import (
	"encoding/json"
	"fmt"
	"path"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

func reference(program string) string {
	return "ghcr.io/kv8s/curl-me-that/" + program + ":" + version()
}

var _ = Describe("The image", func() {
	for _, program := range programs {
		It("of "+program+" is small, runs without root and has its version and labels", func(ctx SpecContext) {
			var images []struct {
				Size   int64
				Config struct {
					User       string
					Entrypoint []string
					Env        []string
					Labels     map[string]string
				}
			}
			Expect(json.Unmarshal([]byte(docker(ctx, "image", "inspect", reference(program))), &images)).To(Succeed())
			Expect(images).To(HaveLen(1))
			image := images[0]
			limit := int64(60_000_000)
			if program == "fetcher" {
				limit = 30_000_000 // including 5 MB of CEL
			}
			AddReportEntry("bytes of "+program, image.Size)
			Expect(image.Size).To(BeNumerically("<=", limit))
			Expect(image.Config.User).To(Equal("65532:65532"))
			Expect(image.Config.Entrypoint).To(Equal([]string{"/app"}))
			Expect(image.Config.Labels).To(And(
				HaveKeyWithValue("org.opencontainers.image.title", "curl-me-that "+program),
				HaveKeyWithValue("org.opencontainers.image.licenses", "Apache-2.0"),
				HaveKeyWithValue("org.opencontainers.image.version", version()),
				HaveKey("org.opencontainers.image.source"),
			))
			flag, prints := "--version", HaveSuffix(" "+version())
			if program == "control-plane" {
				flag, prints = "--help", ContainSubstring("Usage:")
			}
			Expect(docker(ctx, "run", "--rm", "--network=none", "--read-only", "--cap-drop=ALL", reference(program), flag)).
				To(prints)
		})
	}

	It("is pinned by the digest in its own variable", func(ctx SpecContext) {
		all := []string{
			"nats", "registry.k8s.io/etcd", "registry.k8s.io/kube-apiserver", "registry.k8s.io/kubectl", "prom/prometheus",
			"grafana/grafana",
		}
		for _, program := range append(programs, "curl-me-that") {
			all = append(all, "ghcr.io/kv8s/curl-me-that/"+program)
		}
		pinned := map[string]string{}
		for _, image := range all {
			pinned[image] = fmt.Sprintf("sha256:%064x", len(pinned)+1)
			variable := strings.ToUpper(strings.ReplaceAll(path.Base(image), "-", "_")) + "_DIGEST"
			GinkgoT().Setenv(variable, pinned[image])
		}
		images := strings.Fields(compose(ctx, "--profile=*", "config", "--images"))
		Expect(images).To(HaveEach(ContainSubstring("@sha256:")))
		for image, digest := range pinned {
			Expect(images).To(ContainElement(And(HavePrefix(image), HaveSuffix("@"+digest))), image)
		}
	})
})
