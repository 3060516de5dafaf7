package manifests_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/yaml"

	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
)

// composed is a service in docker-compose.yaml.
type composed struct {
	Command     []string `json:"command"`
	NetworkMode string   `json:"network_mode"`
	Ports       []string `json:"ports"`
	// Volumes are strings, or objects for files of the host.
	Volumes []any `json:"volumes"`
}

var _ = It("docker-compose.yaml allows only the API server to reach etcd, which has no authentication", func() {
	text := suitetest.Must(os.ReadFile("../../../docker-compose.yaml"))
	var file struct {
		Services map[string]composed `json:"services"`
	}
	Expect(yaml.Unmarshal(text, &file)).To(Succeed())
	etcd := file.Services["etcd"]
	Expect(etcd.NetworkMode).To(Equal("none"))
	Expect(etcd.Ports).To(BeEmpty())
	Expect(etcd.Command).To(ContainElement("--listen-client-urls=unix:///data/etcd/socket"))
	var mounting []string
	for name, service := range file.Services {
		if strings.Contains(fmt.Sprintf("%q", service.Volumes), `"etcd:`) {
			mounting = append(mounting, name)
		}
	}
	// The service certificates exits before etcd starts.
	Expect(mounting).To(ConsistOf("certificates", "etcd", "kube-apiserver"))
})

var _ = It("make manifests writes manifests with images from another registry", func(ctx SpecContext) {
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
