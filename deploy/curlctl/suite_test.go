package curlctl_test

import (
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"go.uber.org/goleak"
)

func TestCurlctl(t *testing.T) {
	t.Setenv("COLUMNS", "") // the width of the terminal that runs the specs
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(30 * time.Second)
	SetDefaultEventuallyPollingInterval(10 * time.Millisecond)
	RunSpecs(t, "Curlctl")
}

var _ = BeforeSuite(func() {
	// The goroutines of Ginkgo are no concern of ours.
	ignore := goleak.IgnoreCurrent()
	DeferCleanup(func() { Eventually(func() error { return goleak.Find(ignore) }).Should(Succeed()) })
})
