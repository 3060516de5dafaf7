package operate_test

import (
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"go.uber.org/goleak"

	"github.com/kv8s/curl-me-that/proto/pipeline"
)

func TestOperate(t *testing.T) {
	t.Parallel() // beside the plain tests
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(30 * time.Second)
	SetDefaultEventuallyPollingInterval(10 * time.Millisecond)
	RunSpecs(t, "Operate")
}

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		// Ginkgo listens for an interrupt until the process ends.
		goleak.IgnoreTopFunction("github.com/onsi/ginkgo/v2/internal/interrupt_handler.(*InterruptHandler).registerForInterrupts.func2"))
}

var key = pipeline.Key{Namespace: "default", Name: "kube-root-ca.crt", Key: "my.data"}
