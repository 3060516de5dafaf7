package world

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/process"
	"github.com/kv8s/curl-me-that/deploy/local/controlplane"
	"github.com/kv8s/curl-me-that/deploy/testkit/kubetest"
	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	"github.com/kv8s/curl-me-that/proto/signature"
)

// Names of the services.
const (
	Watcher = "watcher"
	Fetcher = "fetcher"
	Writer  = "writer"
	// Keeper is started only by specs with Watchers.
	Keeper = "keeper"
)

// Services returns the names of the services that every world starts.
func Services() []string { return []string{Watcher, Fetcher, Writer} }

// Environment is shared by the specs of a suite.
type Environment struct {
	// Cluster of the services, unless a spec has its own.
	Cluster *Cluster
	// SigningKey and TrustedKeys are the files with the keys that sign and verify wants.
	SigningKey, TrustedKeys string

	bin   string
	ports process.Ports
}

const (
	// patience is how long an expectation waits on a busy machine. It is less than pipeline.AckWait, so a
	// result that needs a redelivery fails the spec.
	patience = 25 * time.Second
	// polling is the interval of cheap checks.
	polling = 10 * time.Millisecond
	// suiteTimeout is shorter than the -timeout of make test. After progressAfter, the report shows where a
	// spec hangs.
	suiteTimeout  = 25 * time.Minute
	progressAfter = 90 * time.Second
)

// Run runs a suite with the default timeouts of this package, and a time limit for the whole suite.
func Run(t *testing.T, suite string) {
	t.Helper()
	RunWithin(t, suite, suiteTimeout)
}

// RunWithin is Run with a time limit for the suite.
func RunWithin(t *testing.T, suite string, limit time.Duration) {
	t.Helper()
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(patience)
	SetDefaultEventuallyPollingInterval(polling)
	EnforceDefaultTimeoutsWhenUsingContexts()
	config, reporter := GinkgoConfiguration()
	config.Timeout = limit
	config.PollProgressAfter = progressAfter
	ReportAfterSuite("time of each spec", func(r Report) { Expect(noteTimes(os.Getenv(timesFile), r)).To(Succeed()) })
	RunSpecs(t, suite, config, reporter)
}

// Number returns the value of an environment variable, or a default.
func Number(variable, usual string) uint64 {
	n, err := strconv.ParseUint(cmp.Or(os.Getenv(variable), usual), 10, 64)
	if err != nil {
		panic(variable + ": " + err.Error())
	}
	return n
}

// Open uses the cluster of KUBECONFIG and the programs in CURLMETHAT_BIN, or in bin at the root of the
// repository. It fails the suite if one is missing.
func Open() *Environment {
	GinkgoHelper()
	kubeconfig := os.Getenv("KUBECONFIG")
	if kubeconfig == "" {
		Fail("KUBECONFIG is not set: run `make test`, which starts an API server if needed")
	}
	cluster := OpenCluster(kubeconfig)
	bin := os.Getenv("CURLMETHAT_BIN")
	if bin == "" {
		bin = filepath.Join("..", "..", "..", "bin")
	}
	bin = suitetest.Must(filepath.Abs(bin))
	var err error
	e := &Environment{Cluster: cluster, bin: bin}
	e.SigningKey, e.TrustedKeys, err = signature.WriteFiles(GinkgoT().TempDir())
	Expect(err).NotTo(HaveOccurred())
	for _, name := range Services() {
		if _, err := os.Stat(e.Program(name)); err != nil {
			Fail("missing " + e.Program(name) + ": run `make build`, or set CURLMETHAT_BIN to the folder of the programs")
		}
	}
	return e
}

// Gateway starts a gateway to the cluster for the spec. It returns the gateway and a kubeconfig for
// Options.Kubeconfigs.
func (e *Environment) Gateway() (g *kubetest.Gateway, kubeconfig func(ctx context.Context, namespace string) string) {
	GinkgoHelper()
	g = suitetest.Must(kubetest.StartGateway(e.Cluster.Config))
	DeferCleanup(g.Close)
	path := filepath.Join(GinkgoT().TempDir(), "gateway.kubeconfig")
	through := controlplane.At(suitetest.Must(controlplane.Load(e.Cluster.Kubeconfig, "")), g.URL())
	Expect(controlplane.Write(through, path)).To(Succeed())
	return g, func(context.Context, string) string { return path }
}

// Program returns the path of one of our programs.
func (e *Environment) Program(name string) string { return filepath.Join(e.bin, name) }

// FreeAddress returns an unused loopback address.
func (e *Environment) FreeAddress() string {
	GinkgoHelper()
	return suitetest.Must(e.ports.Free())
}

// Kubectl returns the path of a kubectl next to the API server, or skips the spec.
func Kubectl() string {
	GinkgoHelper()
	path := suitetest.Must(filepath.Abs(filepath.Join(os.Getenv("KUBEBUILDER_ASSETS"), "kubectl")))
	if _, err := os.Stat(path); err != nil {
		Skip("no kubectl found: `make test` has one if it starts an API server")
	}
	return path
}

// timesFile is the environment variable that names a file. Each suite appends the times of its specs to it,
// because go test prints nothing for a suite that passes.
const timesFile = "SPEC_TIMES"

// noteTimes appends the duration and name of each spec that ran to the file, if one is set.
func noteTimes(file string, r Report) error {
	if file == "" {
		return nil
	}
	var lines strings.Builder
	for _, spec := range r.SpecReports {
		if spec.NumAttempts > 0 && spec.LeafNodeText != "" {
			fmt.Fprintf(&lines, "%8.1f  %s: %s\n", spec.RunTime.Seconds(), r.SuiteDescription, spec.FullText())
		}
	}
	f, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("note the times of specs: %w", err)
	}
	_, err = f.WriteString(lines.String())
	return errors.Join(err, f.Close())
}
