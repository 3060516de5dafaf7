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
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/manifest"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/origin"
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
func Open(ctx context.Context) *world.World {
	GinkgoHelper()
	for _, name := range []string{kubeconfigEnv, originEnv, controlEnv} {
		if os.Getenv(name) == "" {
			Fail(name + " is not set: these specs need a running installation, as from `make test-compose`")
		}
	}
	cluster := world.OpenCluster(os.Getenv(kubeconfigEnv))
	client, control := controlClient(cluster.Config, os.Getenv(controlEnv))
	server := origin.NewRemote(client, control, os.Getenv(originEnv), "e2e-"+time.Now().UTC().Format("150405.000"),
		func(err error) { Fail(err.Error(), 2) })
	w := world.Visit(ctx, cluster, server)
	DeferCleanup(server.ForgetAll)
	return w
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

// reportLines is the number of lines of each log that a failed spec prints.
const reportLines = 60

// Log returns the log of a pod.
func (r *Release) Log(ctx context.Context, pod corev1.Pod) string {
	GinkgoHelper()
	return suitetest.Must(log(ctx, r.Cluster.Client, pod, corev1.PodLogOptions{}))
}

func log(ctx context.Context, client kubernetes.Interface, pod corev1.Pod, options corev1.PodLogOptions) (string,
	error,
) {
	text, err := client.CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, &options).DoRaw(ctx)
	if err != nil {
		return "", fmt.Errorf("read the log of %s: %w", pod.Name, err)
	}
	return string(text), nil
}

// Show adds the pods, ends of their logs and Events of namespaces to the report of a failed spec. It reports
// errors there too.
func Show(ctx context.Context, client kubernetes.Interface, namespaces ...string) {
	for _, namespace := range namespaces {
		pods, err := client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			AddReportEntry("pods of "+namespace, ReportEntryVisibilityFailureOrVerbose, err.Error())
			continue
		}
		for _, pod := range pods.Items {
			text, err := log(ctx, client, pod, corev1.PodLogOptions{TailLines: new(int64(reportLines))})
			if err != nil {
				text = err.Error()
			}
			AddReportEntry(fmt.Sprintf("pod %s/%s", namespace, pod.Name), ReportEntryVisibilityFailureOrVerbose,
				state(pod)+"\n"+text)
		}
		AddReportEntry("Events in "+namespace, ReportEntryVisibilityFailureOrVerbose, events(ctx, client, namespace))
	}
}

// state returns the phase of a pod and a line per container.
func state(pod corev1.Pod) string {
	lines := []string{"phase " + string(pod.Status.Phase)}
	for _, c := range pod.Status.ContainerStatuses {
		line := fmt.Sprintf("%s: ready %t, %d restarts", c.Name, c.Ready, c.RestartCount)
		if w := c.State.Waiting; w != nil {
			line += ", waits: " + w.Reason + " " + w.Message
		}
		if t := c.LastTerminationState.Terminated; t != nil {
			line += fmt.Sprintf(", exited before with %d (%s)", t.ExitCode, t.Reason)
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}

func events(ctx context.Context, client kubernetes.Interface, namespace string) string {
	list, err := client.CoreV1().Events(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err.Error()
	}
	var lines []string
	for _, e := range list.Items {
		if e.Type == corev1.EventTypeWarning {
			lines = append(lines, fmt.Sprintf("%s/%s %s ×%d: %s", e.InvolvedObject.Kind, e.InvolvedObject.Name, e.Reason,
				max(e.Count, 1), e.Message))
		}
	}
	return strings.Join(lines, "\n")
}
