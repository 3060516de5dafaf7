package pipeline_test

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"go.uber.org/goleak"

	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/pipeline/natstest"
)

func TestPipeline(t *testing.T) {
	t.Parallel() // beside the plain tests
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(5 * time.Second)
	SetDefaultEventuallyPollingInterval(10 * time.Millisecond)
	RunSpecs(t, "Pipeline")
}

func TestMain(m *testing.M) {
	if url := os.Getenv(dyingConsumer); url != "" {
		if err := dieOfAMessage(url); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m,
		// Ginkgo listens for an interrupt until the process ends.
		goleak.IgnoreTopFunction("github.com/onsi/ginkgo/v2/internal/interrupt_handler.(*InterruptHandler).registerForInterrupts.func2"))
}

// broker runs a server for the spec.
func broker(o natstest.Options) *natstest.Server {
	GinkgoHelper()
	s, err := natstest.Run(o)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(s.Close)
	return s
}

// connect opens a connection of its own to a server.
func connect(s *natstest.Server, opts ...nats.Option) jetstream.JetStream {
	GinkgoHelper()
	js, closeConn, err := s.JetStream(opts...)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(closeConn)
	return js
}

// ensured runs a server whose streams and consumers exist, and returns the
// epoch of the pipeline.
func ensured(ctx context.Context, t pipeline.Topology) (*natstest.Server, jetstream.JetStream, int64) {
	GinkgoHelper()
	s := broker(natstest.Options{})
	js := connect(s)
	epoch, err := pipeline.Ensure(ctx, js, t)
	Expect(err).NotTo(HaveOccurred())
	return s, js, epoch
}

var key = pipeline.Key{Namespace: "default", Name: "kube-root-ca.crt", Key: "my.data"}

// want returns a want of k.
func want(k pipeline.Key, url string) *v1.Want {
	return &v1.Want{Namespace: k.Namespace, Name: k.Name, Key: k.Key, Uid: "uid", Url: url, Epoch: 1}
}

// numbered returns the n-th of many keys.
func numbered(n int) pipeline.Key {
	return pipeline.Key{Namespace: "default", Name: fmt.Sprintf("cm-%05d", n), Key: "k"}
}
