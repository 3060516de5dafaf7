package demo

import (
	"context"
	"errors"
	"os"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kv8s/curl-me-that/deploy/local"
	"github.com/kv8s/curl-me-that/deploy/testkit/kubetest"
	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
)

func TestDemo(t *testing.T) { suitetest.Run(t, "the demo") }

var _ = It("A demo that is interrupted reports the signal, not that something took too long", func(ctx SpecContext) {
	kubetest.Config(GinkgoTB()) // nothing in this cluster fills a ConfigMap
	output := gbytes.NewBuffer()
	d := &demo{Config: Config{Out: output}, samples: suitetest.Must(readSamples("../../samples", "localhost"))}
	d.samples.valid.Name = "demo-interrupted" // other suites create the sample
	running, interrupt := context.WithCancelCause(ctx)
	ended := make(chan error, 1)
	go func() {
		ended <- d.run(running, local.System{Kubeconfig: os.Getenv(clientcmd.RecommendedConfigPathEnvVar)})
	}()
	Eventually(output).Should(gbytes.Say("kind: ConfigMap"))
	DeferCleanup(func(ctx SpecContext) error { return d.removeEarlier(ctx) })
	interrupted := errors.New("interrupt")
	interrupt(interrupted)
	Eventually(ended).Should(Receive(Equal(interrupted)))
})
