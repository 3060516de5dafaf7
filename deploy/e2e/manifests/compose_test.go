package manifests_test

import (
	"os"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/yaml"

	"github.com/kv8s/curl-me-that/proto/suitetest"
)

// composed is a service in docker-compose.yaml.
type composed struct {
	Command     []string `json:"command"`
	NetworkMode string   `json:"network_mode"`
	Ports       []string `json:"ports"`
	// Volumes are strings, or objects for a file of the host.
	Volumes []any `json:"volumes"`
}

// mounts reports whether a service mounts a volume.
func (c composed) mounts(volume string) bool {
	return slices.ContainsFunc(c.Volumes, func(v any) bool {
		text, _ := v.(string)
		return strings.HasPrefix(text, volume+":")
	})
}

var _ = Describe("docker-compose.yaml", func() {
	It("allows only the API server to reach etcd, which has no authentication", func() {
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
			if service.mounts("etcd") {
				mounting = append(mounting, name)
			}
		}
		// The service certificates has ended before etcd starts.
		Expect(mounting).To(ConsistOf("certificates", "etcd", "kube-apiserver"))
	})
})
