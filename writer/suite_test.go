package writer_test

import (
	"os"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"go.uber.org/goleak"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
)

func TestWriter(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(30 * time.Second)
	RunSpecs(t, "writer")
}

var (
	// cluster is the API server that all specs share; each has its own namespace.
	cluster *rest.Config
	// person is the client of everybody but the writer.
	person *kubernetes.Clientset
)

var _ = BeforeSuite(func() {
	klog.SetOutput(GinkgoWriter)
	klog.LogToStderr(false)
	running := goleak.IgnoreCurrent()
	file := os.Getenv(clientcmd.RecommendedConfigPathEnvVar)
	if file == "" {
		Fail("these specs need an API server: run `make test-unit`, or set KUBECONFIG")
	}
	var err error
	cluster, err = clientcmd.BuildConfigFromFlags("", file)
	Expect(err).NotTo(HaveOccurred())
	cluster.QPS, cluster.Burst = -1, 0
	shared, err := rest.HTTPClientFor(cluster)
	Expect(err).NotTo(HaveOccurred())
	person, err = kubernetes.NewForConfigAndClient(cluster, shared)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() {
		utilnet.CloseIdleConnectionsFor(shared.Transport)
		Eventually(func() error { return goleak.Find(running) }).Should(Succeed())
	})
})
