package pipeline_test

import (
	"fmt"
	"os"
	"testing"

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
