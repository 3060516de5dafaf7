// Package suitetest runs all Ginkgo suites in the same way.
package suitetest

import (
	"fmt"
	"os"
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
		gomega.Expect(leaks(before)).To(gomega.Succeed())
	})
}

// VerifyNoLeaks runs the tests of a package, of testing and Ginkgo, and fails unless all their
// goroutines end.
func VerifyNoLeaks(m *testing.M) {
	code := m.Run()
	if code == 0 {
		// Ginkgo listens for an interrupt until the process ends.
		ginkgos := goleak.IgnoreTopFunction("github.com/onsi/ginkgo/v2/internal/interrupt_handler." +
			"(*InterruptHandler).registerForInterrupts.func2")
		if err := leaks(ginkgos); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// leaks returns an error if goroutines do not end within patience.
func leaks(but goleak.Option) error {
	for end := time.Now().Add(patience); ; {
		if err := goleak.Find(but); err == nil || time.Now().After(end) {
			return err
		}
	}
}

// Must returns the value of a call that must succeed.
func Must[T any](value T, err error) T {
	ginkgo.GinkgoHelper()
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	return value
}
