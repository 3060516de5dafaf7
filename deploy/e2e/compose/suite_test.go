// Package compose checks the running containers of docker compose and kills them under load. `make
// test-compose` starts them and sets the environment variables of package installation.
package compose_test

import (
	"archive/tar"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/deploy/curlctl/connect"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/installation"
	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	"github.com/kv8s/curl-me-that/proto/process/kube"
)

func TestCompose(t *testing.T) { installation.Run(t, "Compose") }

var i *installation.Installation

var _ = BeforeSuite(func(ctx SpecContext) { i = installation.Open(ctx) })

// commandTimeout is the time limit of one docker command.
const commandTimeout = 3 * time.Minute

// docker runs a command at the root of the repository and returns its output.
func docker(ctx context.Context, args ...string) string {
	GinkgoHelper()
	return suitetest.Must(tryDocker(ctx, args...))
}

func tryDocker(ctx context.Context, args ...string) (string, error) {
	GinkgoHelper()
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	root := suitetest.Must(filepath.Abs(filepath.Join("..", "..", "..")))
	cmd := exec.CommandContext(ctx, "docker", args...)
	cmd.Dir = root
	// Otherwise docker compose would use the specs' KUBECONFIG.
	cmd.Env = append(os.Environ(), "KUBECONFIG=")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, GinkgoWriter
	err := cmd.Run()
	return strings.TrimSpace(out.String()), err
}

// compose runs a command of docker compose.
func compose(ctx context.Context, args ...string) string {
	GinkgoHelper()
	return docker(ctx, append([]string{"compose"}, args...)...)
}

// container is a container as `docker inspect` prints it.
type container struct {
	ID     string `json:"Id"`
	Config struct {
		User   string
		Labels map[string]string
	}
	HostConfig struct {
		ReadonlyRootfs bool
		Privileged     bool
		CapDrop        []string
		SecurityOpt    []string
		PortBindings   map[string][]struct {
			HostIP string `json:"HostIp"`
		}
	}
	State struct {
		Running bool
		Health  struct{ Status string }
	}
	RestartCount int
}

// service returns the compose service of the container.
func (c container) service() string { return c.Config.Labels["com.docker.compose.service"] }

// containers returns all containers of some services, or of all, even stopped ones.
func containers(ctx context.Context, services ...string) []container {
	GinkgoHelper()
	ids := strings.Fields(compose(ctx, append([]string{"ps", "--all", "--quiet"}, services...)...))
	if len(ids) == 0 {
		return nil
	}
	var found []container
	Expect(json.Unmarshal([]byte(docker(ctx, append([]string{"inspect"}, ids...)...)), &found)).To(Succeed())
	return found
}

// programs have an image each.
var programs = []string{"watcher", "fetcher", "writer", "keeper", "curlctl", "origin", "control-plane"}

func version() string { return cmp.Or(os.Getenv("VERSION"), "dev") }

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
		o := connect.Options{}
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

var _ = It("A Watcher from the manifests becomes Ready", func(ctx SpecContext) {
	Eventually(ctx, func() (string, error) {
		return tryDocker(ctx, "compose", "run", "--rm", "--no-TTY", "kubectl", "get", "watchers", "jokes", "--no-headers")
	}).Should(MatchRegexp(`^jokes +True +True +1/1 +jokes-config `))
})

// recovery is how long interrupted work may take. It is redelivered to another container after an AckWait of 30
// s.
const recovery = 3 * time.Minute

var _ = Describe("Under load,", Ordered, func() {
	DescribeTable("killing a container with a volume loses nothing:", func(ctx SpecContext, service string) {
		load := i.Load(ctx, "killed-"+service, 40)
		compose(ctx, "kill", "--signal", "SIGKILL", service)
		compose(ctx, "up", "--detach", "--no-build", "--no-recreate", "--no-deps", "--wait", service)
		load.EventuallyFills(ctx, 40, recovery)
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
