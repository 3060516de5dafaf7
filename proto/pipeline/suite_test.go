package pipeline_test

import (
	"fmt"
	"os"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/suitetest"
)

func TestPipeline(t *testing.T) {
	t.Parallel() // beside the plain tests
	suitetest.Run(t, "Pipeline")
}

func TestMain(m *testing.M) {
	if url := os.Getenv(dyingConsumer); url != "" {
		if err := dieOfAMessage(url); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	suitetest.VerifyNoLeaks(m)
}

var key = pipeline.Key{Namespace: "default", Name: "kube-root-ca.crt", Key: "my.data"}

// must returns the value of a call that must succeed.
func must[T any](value T, err error) T {
	GinkgoHelper()
	Expect(err).NotTo(HaveOccurred())
	return value
}
