package watcher_test

import (
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/client-go/rest"

	"github.com/kv8s/curl-me-that/deploy/testkit/kubetest"
	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
)

func TestWatcher(t *testing.T) {
	SetDefaultConsistentlyDuration(400 * time.Millisecond)
	SetDefaultConsistentlyPollingInterval(20 * time.Millisecond)
	suitetest.Run(t, "Watcher")
}

var cluster *rest.Config

var _ = BeforeSuite(func() {
	suitetest.ExpectNoLeaks()
	cluster, kube = dialed(kubetest.Config(GinkgoTB()))
})

// must returns the value of a call that must succeed.
func must[T any](value T, err error) T {
	GinkgoHelper()
	Expect(err).NotTo(HaveOccurred())
	return value
}
