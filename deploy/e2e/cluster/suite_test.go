// Package cluster_test installs curl-me-that in the cluster of KUBECONFIG and checks that it keeps
// its promises while pods come and go. `make test-cluster` sets its environment variables:
//
//	HELM                      the program
//	CHART                     chart to install, a folder or a packaged chart;
//	                          default: deploy/chart
//	MANIFESTS                 folder of install.yaml; default: rendered
//	CURLMETHAT_E2E_VERSION    tag of the images
//	CURLMETHAT_E2E_NEXT       tag of the images to upgrade to
//	CURLMETHAT_E2E_DOMAIN     domain of the cluster, if that is not cluster.local
//
// All nodes must have the images, or be able to pull them. The suite changes no existing objects,
// but while it runs, it also fills other annotated ConfigMaps in the cluster.
package cluster_test

import (
	"cmp"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/installation"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
)

func TestCluster(t *testing.T) { installation.Run(t, "Cluster") }

// registry is the image registry in the chart's values.
const registry = "ghcr.io/kv8s/curl-me-that/"

// recovery is how long interrupted work may take. It is redelivered to another pod after an AckWait of 30 s.
const recovery = 3 * time.Minute

var (
	cluster       *world.Cluster
	origin        *installation.OriginPod
	version, next string
	// shown are the namespaces that a failed spec prints.
	shown []string
)

var _ = BeforeSuite(func(ctx SpecContext) {
	version, next = needs("CURLMETHAT_E2E_VERSION"), needs("CURLMETHAT_E2E_NEXT")
	cluster = world.OpenCluster(needs("KUBECONFIG"))
	web := namespace(ctx, "curl-me-that-web-")
	origin = installation.RunOrigin(ctx, cluster, cmp.Or(os.Getenv("CURLMETHAT_E2E_DOMAIN"), "cluster.local"), web,
		registry+"origin:"+version)
	// These are for package installation, here and in the child process that runs the suite installed.
	Expect(os.Setenv("CURLMETHAT_E2E_ORIGIN", origin.URL)).To(Succeed())
	Expect(os.Setenv("CURLMETHAT_E2E_CONTROL", origin.Control)).To(Succeed())
})

var _ = AfterEach(func(ctx SpecContext) {
	if CurrentSpecReport().Failed() {
		installation.Show(ctx, cluster.Client, shown...)
	}
})

func needs(variable string) string {
	GinkgoHelper()
	value := os.Getenv(variable)
	if value == "" {
		Fail(variable + " is not set: run `make test-cluster`")
	}
	return value
}

// chartPath returns the path of the chart to install.
func chartPath() string {
	GinkgoHelper()
	return cmp.Or(os.Getenv("CHART"), fromRoot("deploy/chart"))
}

// fromRoot returns the absolute path of a file below the root of the repository.
func fromRoot(path string) string {
	GinkgoHelper()
	return suitetest.Must(filepath.Abs(filepath.Join("..", "..", "..", path)))
}

// namespace creates a namespace with the restricted standard until the end of the container or suite.
func namespace(ctx context.Context, prefix string) string {
	GinkgoHelper()
	labels := map[string]string{"pod-security.kubernetes.io/enforce": "restricted"}
	created := suitetest.Must(cluster.Client.CoreV1().Namespaces().Create(ctx,
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: prefix, Labels: labels}}, metav1.CreateOptions{}))
	shown = append(shown, created.Name)
	DeferCleanup(func(ctx SpecContext) { remove(ctx, created.Name) })
	return created.Name
}

// remove deletes a namespace and waits until it is gone.
func remove(ctx context.Context, name string) {
	GinkgoHelper()
	namespaces := cluster.Client.CoreV1().Namespaces()
	gone := MatchError(apierrors.IsNotFound, "not found")
	Expect(namespaces.Delete(ctx, name, metav1.DeleteOptions{})).To(Or(Succeed(), gone))
	Eventually(ctx, func() error { return world.ErrorOf(namespaces.Get(ctx, name, metav1.GetOptions{})) }).
		Should(gone, "namespace %s is gone", name)
}

const (
	// keeper is the component for Watchers.
	keeper = "keeper"
	// scheduled is a timeout for kubelets on a busy machine.
	scheduled = 2 * time.Minute
)

// acceptanceTimeout is the maximum duration of the installed suite.
const acceptanceTimeout = 10 * time.Minute

// runInstalledSuite runs the suite in deploy/e2e/installed.
func runInstalledSuite(ctx SpecContext) {
	GinkgoHelper()
	limited, cancel := context.WithTimeout(ctx, acceptanceTimeout)
	defer cancel()
	cmd := exec.CommandContext(limited, "go", "test", "-vet=off", "-count=1", "-v", "../installed", "--ginkgo.no-color")
	cmd.Env = append(os.Environ(), "KUBECONFIG="+cluster.Kubeconfig)
	cmd.Stdout, cmd.Stderr = GinkgoWriter, GinkgoWriter
	Expect(cmd.Run()).To(Succeed(), "the suite in deploy/e2e/installed, whose report is above")
}
