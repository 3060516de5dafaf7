package world

import (
	"os"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"

	"github.com/kv8s/curl-me-that/proto/suitetest"
)

// Kubectl returns the path of a kubectl next to the API server, or skips the spec.
func Kubectl() string {
	GinkgoHelper()
	path := suitetest.Must(filepath.Abs(filepath.Join(os.Getenv("KUBEBUILDER_ASSETS"), "kubectl")))
	if _, err := os.Stat(path); err != nil {
		Skip("no kubectl found: `make test-acceptance` has one if it starts an API server")
	}
	return path
}
