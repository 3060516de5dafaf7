package compose_test

import (
	"archive/tar"
	"errors"
	"io"
	"path"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/deploy/curlctl/broker"
	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	"github.com/kv8s/curl-me-that/proto/kube"
)

var _ = Describe("A container", func() {
	It("runs without root, without capabilities and with a read-only root filesystem", func(ctx SpecContext) {
		for _, c := range containers(ctx, "watcher", "fetcher", "writer", "keeper", "origin", "identities", "setup",
			"certificates") {
			Expect(c.HostConfig.ReadonlyRootfs).To(BeTrue(), c.service())
			Expect(c.HostConfig.Privileged).To(BeFalse(), c.service())
			Expect(c.HostConfig.CapDrop).To(Equal([]string{"ALL"}), c.service())
			Expect(c.HostConfig.SecurityOpt).To(ContainElement(HavePrefix("no-new-privileges")), c.service())
			Expect(c.Config.User).To(Equal("65532:65532"), c.service())
		}
	})

	DescribeTable("has only the keys of its own identity", func(ctx SpecContext, service, folder string, files ...string) {
		for _, c := range containers(ctx, service) {
			names := tar.NewReader(strings.NewReader(docker(ctx, "cp", c.ID+":"+folder, "-")))
			var found []string
			for {
				entry, err := names.Next()
				if errors.Is(err, io.EOF) {
					break
				}
				Expect(err).NotTo(HaveOccurred())
				if entry.Typeflag == tar.TypeReg {
					found = append(found, path.Base(entry.Name))
				}
			}
			Expect(found).To(ConsistOf(files), service)
		}
	},
		Entry(nil, "watcher", "/identities", "watcher.nk", "ca.crt", "signing.nk"),
		Entry(nil, "fetcher", "/identities", "fetcher.nk", "ca.crt", "signing.pub"),
		Entry(nil, "writer", "/identities", "writer.nk", "ca.crt", "signing.pub"),
		Entry(nil, "setup", "/identities", "setup.nk", "ca.crt"),
		Entry(nil, "healer", "/identities", "setup.nk", "ca.crt"),
		Entry(nil, "nats", "/etc/nats/identities", "identities.conf", "ca.crt", "tls.crt", "tls.key"),
	)

	It("writes beside the kubeconfig what curlctl needs to find NATS", func(ctx SpecContext) {
		GinkgoT().Setenv("XDG_CONFIG_HOME", GinkgoT().TempDir()) // without a selected context
		o := broker.Options{}
		connection := suitetest.Must(o.Open(ctx, kube.Options{}))
		DeferCleanup(connection.Close)
		Expect(connection.Where).To(HavePrefix("nats://127.0.0.1:"))
	})

	It("publishes ports on loopback only", func(ctx SpecContext) {
		for _, c := range containers(ctx) {
			for port, bindings := range c.HostConfig.PortBindings {
				for _, binding := range bindings {
					Expect(binding.HostIP).To(Equal("127.0.0.1"), "%s %s", c.service(), port)
				}
			}
		}
	})

	DescribeTable("has either a token of the cluster or access to NATS", func(ctx SpecContext, service, mount string) {
		found := containers(ctx, service)
		Expect(found).NotTo(BeEmpty())
		for _, c := range found {
			mounts := docker(ctx, "inspect", "--format", "{{range .Mounts}}{{.Destination}} {{end}}", c.ID)
			Expect(strings.Fields(mounts)).To(Equal([]string{mount}))
		}
	}, Entry(nil, "keeper", "/data/keeper"), Entry(nil, "fetcher", "/identities"))
})

// recovery is how long interrupted work may take. It is redelivered to another container after an AckWait of 30
// s.
const recovery = 3 * time.Minute

var _ = Describe("Under load,", Ordered, func() {
	DescribeTable("killing a container with a volume loses nothing:", func(ctx SpecContext, service string) {
		load := i.Load(ctx, "killed-"+service, 40)
		compose(ctx, "kill", "--signal", "SIGKILL", service)
		compose(ctx, "up", "--detach", "--no-build", "--no-recreate", "--no-deps", "--wait", service)
		Eventually(ctx, load.Filled).WithTimeout(recovery).Should(Equal(40), "ConfigMaps with their data")
	},
		Entry(nil, "nats"),
		Entry(nil, "kube-apiserver"),
	)

	It("NATS denies nothing, and no service panics", func(ctx SpecContext) {
		for _, service := range []string{"nats", "watcher", "fetcher", "writer", "keeper"} {
			logs := compose(ctx, "logs", "--no-color", "--no-log-prefix", service)
			for _, word := range []string{"Violation", "violation", "panic:", "fatal error:"} {
				Expect(logs).NotTo(ContainSubstring(word), service)
			}
		}
	})
})

var _ = It("A Watcher from the manifests becomes Ready", func(ctx SpecContext) {
	Eventually(ctx, func() (string, error) {
		return tryDocker(ctx, "compose", "run", "--rm", "--no-TTY", "kubectl", "get", "watchers", "jokes", "--no-headers")
	}).Should(MatchRegexp(`^jokes +True +True +1/1 +jokes-config `))
})
