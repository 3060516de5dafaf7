// Package installation tests an existing installation from outside: through the API of
// Kubernetes, and through an origin whose responses the spec controls. Its helpers fail
// the spec.
//
// It reads these environment variables:
//
//	KUBECONFIG               of an administrator
//	CURLMETHAT_E2E_ORIGIN    URL of the origin, for the fetchers: http://origin:8080
//	CURLMETHAT_E2E_CONTROL   URL of the origin's control, for this process:
//	                         http://127.0.0.1:8084, or NAMESPACE/SERVICE:PORT to
//	                         reach it through the API server
package installation

import (
	"context"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/client-go/rest"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
)

const (
	// Patience is how long an expectation waits: long enough for a refresh at the minimum interval, on a busy
	// machine.
	Patience = 90 * time.Second
	// AWhile is how long specs watch that something does not happen.
	AWhile = 3 * time.Second
	// polling is slow to spare the API server and the origin.
	polling = 100 * time.Millisecond
)

// Environment variables that locate the installation.
const (
	kubeconfigEnv = "KUBECONFIG"
	originEnv     = "CURLMETHAT_E2E_ORIGIN"
	controlEnv    = "CURLMETHAT_E2E_CONTROL"
)

// Installation is a running installation with a namespace for specs.
type Installation struct {
	*world.World
	// Origin of the pages to fetch.
	Origin *Origin
}

// Run runs a suite against an installation.
func Run(t *testing.T, suite string) {
	t.Helper()
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(Patience)
	SetDefaultEventuallyPollingInterval(polling)
	SetDefaultConsistentlyDuration(AWhile)
	SetDefaultConsistentlyPollingInterval(polling)
	EnforceDefaultTimeoutsWhenUsingContexts()
	config, reporter := GinkgoConfiguration()
	config.Timeout = 20 * time.Minute
	config.PollProgressAfter = 3 * time.Minute
	RunSpecs(t, suite, config, reporter)
}

// Open connects to the installation in the environment variables. It fails the suite if one is missing. Call it
// in BeforeSuite. At the end of the suite it checks the promises and removes its objects.
func Open(ctx context.Context) *Installation {
	GinkgoHelper()
	for _, name := range []string{kubeconfigEnv, originEnv, controlEnv} {
		if os.Getenv(name) == "" {
			Fail(name + " is not set: these specs need a running installation, as from `make test-compose`")
		}
	}
	cluster := suitetest.Must(world.OpenCluster(os.Getenv(kubeconfigEnv)))
	i := &Installation{}
	client, control := controlClient(cluster.Config, os.Getenv(controlEnv))
	i.Origin = NewOrigin(client, control, os.Getenv(originEnv), "e2e-"+time.Now().UTC().Format("150405.000"))
	i.World = world.Visit(ctx, cluster, i.Origin.Served)
	DeferCleanup(func(ctx SpecContext) error { return i.Origin.Forget(ctx) })
	return i
}

// service matches NAMESPACE/SERVICE:PORT.
var service = regexp.MustCompile(`^([a-z0-9-]+)/([a-z0-9-]+:[a-z0-9-]+)$`)

// controlClient returns a client and the URL of the origin's control, directly or through the API server's
// proxy to a Service.
func controlClient(config *rest.Config, control string) (*http.Client, string) {
	GinkgoHelper()
	parts := service.FindStringSubmatch(control)
	if parts == nil {
		return http.DefaultClient, control
	}
	client := suitetest.Must(rest.HTTPClientFor(config))
	return client, strings.TrimSuffix(config.Host, "/") + "/api/v1/namespaces/" + parts[1] + "/services/" + parts[2] +
		"/proxy"
}
