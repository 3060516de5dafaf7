package release

import (
	"context"
	"fmt"
	"net/netip"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/util/cert"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
	"github.com/kv8s/curl-me-that/proto/suitetest"
)

// originName is the name of the origin's pod and Service, and controlPort its port for
// instructions.
const (
	originName  = "origin"
	controlPort = "control"
)

// Origin is a web server in a pod, which stands for the internet.
type Origin struct {
	// URL of its pages, for fetchers.
	URL string
	// Control is NAMESPACE/SERVICE:PORT of where it takes instructions.
	Control string
	// CIDRs are its addresses, which are private ones in most clusters: fetchers
	// must be allowed to reach them.
	CIDRs []string
	// Authority has signed the certificate of its port 8443, as PEM, for AnyHost.
	Authority []byte
	// Pod that it runs in.
	Pod *corev1.Pod
}

// AnyHost is a name that only the origin resolves, as a proxy.
const AnyHost = "rules.corp.example"

// RunOrigin runs an origin in a namespace of a cluster with that domain, and
// returns when it serves.
func RunOrigin(ctx context.Context, c *world.Cluster, domain, namespace, image string) *Origin {
	GinkgoHelper()
	core := c.Client.CoreV1()
	labels := map[string]string{"app": originName}
	service := suitetest.Must(core.Services(namespace).Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: originName},
		Spec: corev1.ServiceSpec{Selector: labels, Ports: []corev1.ServicePort{
			{Name: "pages", Port: 8080, TargetPort: intstr.FromString("pages")},
			{Name: controlPort, Port: 8084, TargetPort: intstr.FromString(controlPort)},
		}},
	}, metav1.CreateOptions{}))
	certificate, key, err := cert.GenerateSelfSignedCertKey(AnyHost, nil, nil)
	Expect(err).NotTo(HaveOccurred())
	suitetest.Must(core.Secrets(namespace).Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: originName},
		Data:       map[string][]byte{corev1.TLSCertKey: certificate, corev1.TLSPrivateKeyKey: key},
	}, metav1.CreateOptions{}))
	pod := RunPod(ctx, c, namespace, image, labels)
	return &Origin{
		Pod: pod, Authority: certificate,
		// Use the full name: some clusters take long to report that there is no domain "svc".
		URL:     fmt.Sprintf("http://%s.%s.svc.%s:8080", originName, namespace, domain),
		Control: fmt.Sprintf("%s/%s:%s", namespace, originName, controlPort),
		// The fetcher meets the Service's address, a network policy the pod's.
		CIDRs: cidrs(append([]string{service.Spec.ClusterIP}, addresses(pod)...)),
	}
}

// RunPod runs an origin without a Service and returns when it is ready.
func RunPod(ctx context.Context, c *world.Cluster, namespace, image string, labels map[string]string) *corev1.Pod {
	GinkgoHelper()
	pods := c.Client.CoreV1().Pods(namespace)
	suitetest.Must(pods.Create(ctx, originPod(labels, image), metav1.CreateOptions{}))
	var pod *corev1.Pod
	Eventually(ctx, func(g Gomega) {
		now, err := pods.Get(ctx, originName, metav1.GetOptions{})
		g.Expect(err).NotTo(HaveOccurred())
		pod = now
		g.Expect(ready(*pod)).To(BeTrue(), state(*pod))
	}).WithTimeout(readyTimeout).WithPolling(polling).Should(Succeed(), "the origin's pod")
	return pod
}

func originPod(labels map[string]string, image string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: originName, Labels: labels},
		Spec: corev1.PodSpec{
			AutomountServiceAccountToken: new(false),
			SecurityContext: &corev1.PodSecurityContext{
				RunAsNonRoot: new(true), RunAsUser: new(int64(65532)),
				SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			},
			Containers: []corev1.Container{{
				Name: originName, Image: image,
				Ports: []corev1.ContainerPort{{Name: "pages", ContainerPort: 8080}, {Name: controlPort, ContainerPort: 8084}},
				ReadinessProbe: &corev1.Probe{
					ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{
						Path: "/readyz",
						Port: intstr.FromString(controlPort),
					}},
					PeriodSeconds: 1,
				},
				VolumeMounts: []corev1.VolumeMount{{Name: "tls", MountPath: "/tls"}},
				SecurityContext: &corev1.SecurityContext{
					AllowPrivilegeEscalation: new(false), ReadOnlyRootFilesystem: new(true),
					Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
				},
			}},
			Volumes: []corev1.Volume{{Name: "tls", VolumeSource: corev1.VolumeSource{
				Secret: &corev1.SecretVolumeSource{SecretName: originName, Optional: new(true)},
			}}},
		},
	}
}

// addresses returns the addresses of a pod.
func addresses(pod *corev1.Pod) []string {
	var all []string
	for _, ip := range pod.Status.PodIPs {
		all = append(all, ip.IP)
	}
	return all
}

// cidrs returns ranges of one address each.
func cidrs(addresses []string) []string {
	ranges := make([]string, 0, len(addresses))
	for _, text := range addresses {
		address := suitetest.Must(netip.ParseAddr(text))
		ranges = append(ranges, netip.PrefixFrom(address, address.BitLen()).String())
	}
	return ranges
}
