// Package release installs the chart in a cluster as a person does, with helm,
// and treats its pods as a cluster does in bad times. Its helpers fail the spec.
package release

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
	"github.com/kv8s/curl-me-that/proto/suitetest"
)

const (
	// helmEnv names the program.
	helmEnv = "HELM"
	// waits is the time limit of helm for pods, and slack its time on top of that.
	waits = 4 * time.Minute
	slack = time.Minute
)

// Release is one installation of the chart.
type Release struct {
	// Cluster and Namespace of the release.
	Cluster   *world.Cluster
	Namespace string
	// Name of the release. All objects have it as their name, because it contains the
	// name of the chart.
	Name string
	// Chart is the folder of the chart.
	Chart string
	// Values override the values of the chart.
	Values map[string]any
}

// Install installs or upgrades the release and waits until all of it is ready.
func (r *Release) Install(ctx context.Context) {
	GinkgoHelper()
	values := suitetest.Must(json.Marshal(r.Values))
	home := folder()
	defer os.RemoveAll(home)
	file := filepath.Join(home, "values.json")
	Expect(os.WriteFile(file, values, 0o600)).To(Succeed())
	r.helm(ctx, "upgrade", r.Name, r.Chart, "--install", "--values", file,
		"--wait", "--wait-for-jobs", "--timeout", waits.String())
}

// Test runs the tests of the chart.
func (r *Release) Test(ctx context.Context) {
	GinkgoHelper()
	r.helm(ctx, "test", r.Name, "--timeout", waits.String())
}

// Uninstall removes the release and waits until that is done.
func (r *Release) Uninstall(ctx context.Context) {
	GinkgoHelper()
	r.helm(ctx, "uninstall", r.Name, "--wait", "--ignore-not-found", "--timeout", waits.String())
}

// helm runs a command of helm in the release's namespace.
func (r *Release) helm(ctx context.Context, args ...string) {
	GinkgoHelper()
	program := os.Getenv(helmEnv)
	if program == "" {
		Fail(helmEnv + " is not set: run `make test-cluster`, which builds helm")
	}
	ctx, cancel := context.WithTimeout(ctx, waits+slack)
	defer cancel()
	//nolint:gosec // the program is of the person who runs the suite
	cmd := exec.CommandContext(ctx, program,
		append(args, "--namespace", r.Namespace, "--kubeconfig", r.Cluster.Kubeconfig)...)
	// Ignore the configuration of the user.
	home := folder()
	defer os.RemoveAll(home)
	cmd.Env = append(os.Environ(), "HOME="+home)
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = GinkgoWriter, &output
	err := cmd.Run()
	if err != nil {
		err = errors.Join(fmt.Errorf("helm %s: %w", args[0], err), errors.New(output.String()))
	}
	Expect(err).NotTo(HaveOccurred())
}

// folder creates a temporary folder. GinkgoT cannot do that in a cleanup.
func folder() string {
	GinkgoHelper()
	return suitetest.Must(os.MkdirTemp("", "helm-"))
}
