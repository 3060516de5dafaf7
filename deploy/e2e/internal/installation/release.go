package installation

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"time"

	. "github.com/onsi/ginkgo/v2"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/manifest"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
)

const (
	// waits is how long helm waits for pods, and slack its additional time.
	waits = 4 * time.Minute
	slack = time.Minute
)

// Release is one installation of the chart.
type Release struct {
	// Cluster and Namespace of the release.
	Cluster   *world.Cluster
	Namespace string
	// Name of the release. It contains the name of the chart, so all objects start with it.
	Name string
	// Chart is the folder of the chart.
	Chart string
	// Values override the values of the chart.
	Values map[string]any
}

// Install installs or upgrades the release and waits until it is ready.
func (r *Release) Install(ctx context.Context) {
	GinkgoHelper()
	values := suitetest.Must(json.Marshal(r.Values))
	r.helm(ctx, bytes.NewReader(values), "upgrade", r.Name, r.Chart, "--install", "--values", "-",
		"--wait", "--wait-for-jobs", "--timeout", waits.String())
}

// Test runs the tests of the chart.
func (r *Release) Test(ctx context.Context) {
	GinkgoHelper()
	r.helm(ctx, nil, "test", r.Name, "--timeout", waits.String())
}

// Uninstall removes the release and waits until it is gone.
func (r *Release) Uninstall(ctx context.Context) {
	GinkgoHelper()
	r.helm(ctx, nil, "uninstall", r.Name, "--wait", "--ignore-not-found", "--timeout", waits.String())
}

// helm runs a command of helm in the release's namespace.
func (r *Release) helm(ctx context.Context, stdin io.Reader, args ...string) {
	GinkgoHelper()
	ctx, cancel := context.WithTimeout(ctx, waits+slack)
	defer cancel()
	args = append(args, "--namespace", r.Namespace, "--kubeconfig", r.Cluster.Kubeconfig)
	GinkgoWriter.Println(string(suitetest.Must(manifest.Helm(ctx, stdin, args...))))
}
