// Package suitetest runs all Ginkgo suites in the same way, reads metrics, and serves DNS.
package suitetest

import (
	"testing"
	"time"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
	"go.uber.org/goleak"
)

// patience is how long a spec waits for an event on a busy machine.
const patience = 30 * time.Second

// Run runs the specs of a package.
func Run(t *testing.T, suite string) {
	t.Helper()
	gomega.RegisterFailHandler(ginkgo.Fail)
	gomega.SetDefaultEventuallyTimeout(patience)
	ginkgo.RunSpecs(t, suite)
}

// ExpectNoLeaks fails the suite unless all goroutines of its specs end. Call it first in
// BeforeSuite, so that it runs after all other cleanup.
func ExpectNoLeaks() {
	// Ignore the goroutines of Ginkgo.
	before := goleak.IgnoreCurrent()
	ginkgo.DeferCleanup(func() {
		gomega.Eventually(func() error { return goleak.Find(before) }).Should(gomega.Succeed())
	})
}

// Must returns the value of a call that must succeed.
func Must[T any](value T, err error) T {
	ginkgo.GinkgoHelper()
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	return value
}
