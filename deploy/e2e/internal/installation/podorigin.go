package installation

import (
	"context"
	_ "embed" // the manifest
	"fmt"
	"net/netip"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/cert"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
	"github.com/kv8s/curl-me-that/deploy/local/controlplane"
	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
)

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

// cidrs returns a range for each address: the fetcher dials the address of the Service, a network policy sees
// that of the pod.
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
