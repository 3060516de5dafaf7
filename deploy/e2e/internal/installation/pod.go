package installation

import (
	"context"
	_ "embed" // the manifest
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/util/cert"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
	"github.com/kv8s/curl-me-that/deploy/local/controlplane"
	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
)

// Components of a release that run all the time. NATS is the bundled server.
const (
	Watcher = "watcher"
	Fetcher = "fetcher"
	Writer  = "writer"
	NATS    = "nats"
)

const (
	// readyTimeout is long because the machine may be busy.
	readyTimeout = 3 * time.Minute
	// podPolling is slow to spare the API server.
	podPolling = 200 * time.Millisecond
)

// Object returns the name of the workload and service account of a component.
func (r *Release) Object(component string) string { return r.Name + "-" + component }

// Pods returns the pods of a component, or of the whole release if component is empty.
func (r *Release) Pods(ctx context.Context, component string) []corev1.Pod {
	GinkgoHelper()
	return suitetest.Must(r.pods(ctx, component))
}

func (r *Release) pods(ctx context.Context, component string) ([]corev1.Pod, error) {
	selector := labels.Set{"app.kubernetes.io/instance": r.Name}
	if component != "" {
		selector["app.kubernetes.io/component"] = component
	}
	list, err := r.Cluster.Client.CoreV1().Pods(r.Namespace).
		List(ctx, metav1.ListOptions{LabelSelector: selector.String()})
	if err != nil {
		return nil, fmt.Errorf("list the pods of %s: %w", component, err)
	}
	return list.Items, nil
}

// EventuallyRuns waits until a component has exactly n pods, all ready.
func (r *Release) EventuallyRuns(ctx context.Context, component string, n int) {
	GinkgoHelper()
	Eventually(ctx, func(g Gomega) {
		pods, err := r.pods(ctx, component)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(pods).To(HaveLen(n))
		for _, pod := range pods {
			g.Expect(pod.DeletionTimestamp).To(BeNil(), "%s is terminating", pod.Name)
			g.Expect(ready(pod)).To(BeTrue(), "%s is ready", pod.Name)
		}
	}).WithTimeout(readyTimeout).WithPolling(podPolling).Should(Succeed(), "pods of %s", component)
}

func ready(pod corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// Kill deletes a pod without a grace period.
func (r *Release) Kill(ctx context.Context, pod corev1.Pod) {
	GinkgoHelper()
	Expect(r.Cluster.Client.CoreV1().Pods(r.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{
		GracePeriodSeconds: new(int64(0)), Preconditions: metav1.NewUIDPreconditions(string(pod.UID)),
	})).To(Succeed())
}

// Metrics reads the metrics of a pod through the API server.
func (r *Release) Metrics(ctx context.Context, pod corev1.Pod) string {
	GinkgoHelper()
	for _, container := range pod.Spec.Containers {
		for _, port := range container.Ports {
			if port.Name == "metrics" {
				return string(suitetest.Must(r.Cluster.Client.CoreV1().Pods(r.Namespace).
					ProxyGet("http", pod.Name, fmt.Sprint(port.ContainerPort), "/metrics", nil).DoRaw(ctx)))
			}
		}
	}
	Fail("pod " + pod.Name + " has no port named metrics")
	return ""
}

// originManifest has the Service, the Secret and the pod of the origin, with placeholders for
// the image and the certificate.
//
//go:embed origin.yaml
var originManifest string

// OriginPod is a web server in a pod. It plays the internet.
type OriginPod struct {
	// URL of its pages, for fetchers.
	URL string
	// Control is the NAMESPACE/SERVICE:PORT that takes instructions.
	Control string
	// CIDRs are its addresses. They are private in most clusters, so fetchers must be allowed to reach them.
	CIDRs []string
	// Authority is the certificate authority (PEM) of port 8443, which serves AnyHost.
	Authority []byte
	// Pod that it runs in.
	Pod *corev1.Pod
}

// AnyHost is a name that only the origin resolves, as a proxy.
const AnyHost = "rules.corp.example"

// RunOrigin runs an origin in a namespace and waits until it is ready. domain is the DNS domain of the cluster.
func RunOrigin(ctx context.Context, c *world.Cluster, domain, namespace, image string) *OriginPod {
	GinkgoHelper()
	certificate, key, err := cert.GenerateSelfSignedCertKey(AnyHost, nil, nil)
	Expect(err).NotTo(HaveOccurred())
	quoted := func(pem []byte) string { return fmt.Sprintf("%q", pem) }
	manifest := strings.NewReplacer("IMAGE", image, "CERTIFICATE", quoted(certificate), "KEY", quoted(key)).
		Replace(originManifest)
	Expect(controlplane.ApplyManifest(ctx, c.Config, "e2e", namespace, []byte(manifest))).To(Succeed())
	core := c.Client.CoreV1()
	var pod *corev1.Pod
	Eventually(ctx, func(g Gomega) {
		now, err := core.Pods(namespace).Get(ctx, "origin", metav1.GetOptions{})
		g.Expect(err).NotTo(HaveOccurred())
		pod = now
		g.Expect(ready(*pod)).To(BeTrue(), state(*pod))
	}).WithTimeout(readyTimeout).WithPolling(podPolling).Should(Succeed(), "the origin's pod")
	service := suitetest.Must(core.Services(namespace).Get(ctx, "origin", metav1.GetOptions{}))
	return &OriginPod{
		Pod: pod, Authority: certificate,
		// The full name, because some clusters are slow to report that there is no domain "svc".
		URL:     fmt.Sprintf("http://origin.%s.svc.%s:8080", namespace, domain),
		Control: namespace + "/origin:control",
		CIDRs:   cidrs(service, pod),
	}
}

// cidrs returns a range for each address: the fetcher dials the Service, but a network policy sees the
// address of the pod.
func cidrs(service *corev1.Service, pod *corev1.Pod) []string {
	GinkgoHelper()
	addresses := []string{service.Spec.ClusterIP}
	for _, ip := range pod.Status.PodIPs {
		addresses = append(addresses, ip.IP)
	}
	var ranges []string
	for _, text := range addresses {
		address := suitetest.Must(netip.ParseAddr(text))
		ranges = append(ranges, netip.PrefixFrom(address, address.BitLen()).String())
	}
	return ranges
}
