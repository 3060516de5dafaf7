// Package compose checks the running containers of docker compose and kills them under load. `make
// test-compose` starts them and sets the environment variables of package installation.
package compose_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/installation"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
)

func TestCompose(t *testing.T) { installation.Run(t, "Compose") }

var i *world.World

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
