package fetcher_test

import (
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/proto/suitetest"
)

func TestFetcher(t *testing.T) { suitetest.Run(t, "Fetcher") }

var _ = BeforeSuite(suitetest.ExpectNoLeaks)

func must[T any](value T, err error) T {
	GinkgoHelper()
	Expect(err).NotTo(HaveOccurred())
	return value
}
