package writer_test

import (
	"testing"

	. "github.com/onsi/ginkgo/v2"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/kv8s/curl-me-that/deploy/testkit/kubetest"
	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
)

func TestWriter(t *testing.T) { suitetest.Run(t, "writer") }

var (
	// cluster is the API server of all specs. Each spec has its own namespace.
	cluster *rest.Config
	// person is the client of people and controllers other than the writer.
	person *kubernetes.Clientset
)

var _ = BeforeSuite(func() {
	klog.SetOutput(GinkgoWriter)
	klog.LogToStderr(false)
	suitetest.ExpectNoLeaks()
	cluster = kubetest.Config(GinkgoTB())
	shared := suitetest.Must(rest.HTTPClientFor(cluster))
	person = suitetest.Must(kubernetes.NewForConfigAndClient(cluster, shared))
	DeferCleanup(func() { utilnet.CloseIdleConnectionsFor(shared.Transport) })
})

const url = "https://data.example.com/greeting?token=secret"
