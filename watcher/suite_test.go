package watcher_test

import (
	"os"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"go.uber.org/goleak"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

func TestWatcher(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(30 * time.Second)
	SetDefaultEventuallyPollingInterval(10 * time.Millisecond)
	SetDefaultConsistentlyDuration(400 * time.Millisecond)
	SetDefaultConsistentlyPollingInterval(20 * time.Millisecond)
	RunSpecs(t, "Watcher")
}

// cluster is the API server that the specs run against.
var cluster *rest.Config

var _ = BeforeSuite(func() {
	before := goleak.IgnoreCurrent()
	// Registered first, so that it runs after all that the specs clean up.
	DeferCleanup(func() {
		Eventually(func() error { return goleak.Find(before) }).Should(Succeed())
	})
	kubeconfig := os.Getenv("KUBECONFIG")
	if kubeconfig == "" {
		Fail("these specs need an API server: run `make test`, which starts one, or set KUBECONFIG")
	}
	var err error
	cluster, err = clientcmd.BuildConfigFromFlags("", kubeconfig)
	Expect(err).NotTo(HaveOccurred())
	cluster.QPS, cluster.Burst = -1, 0
	cluster, kube = dialed(cluster)
})
