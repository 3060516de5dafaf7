package engine_test

import (
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
)

func TestEngine(t *testing.T) { suitetest.Run(t, "Engine") }

var _ = BeforeSuite(suitetest.ExpectNoLeaks)

func must[T any](value T, err error) T {
	GinkgoHelper()
	Expect(err).NotTo(HaveOccurred())
	return value
}
