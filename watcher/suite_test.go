package watcher_test

import (
	"os"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kv8s/curl-me-that/proto/suitetest"
)

func TestWatcher(t *testing.T) {
	SetDefaultConsistentlyDuration(400 * time.Millisecond)
	SetDefaultConsistentlyPollingInterval(20 * time.Millisecond)
	suitetest.Run(t, "Watcher")
}

// cluster is the API server that the specs run against.
var cluster *rest.Config

var _ = BeforeSuite(func() {
	suitetest.ExpectNoLeaks()
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
