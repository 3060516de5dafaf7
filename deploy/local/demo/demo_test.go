package demo

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/kv8s/curl-me-that/deploy/local"
	"github.com/kv8s/curl-me-that/deploy/testkit/kubetest"
	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	"github.com/kv8s/curl-me-that/proto/kube"
)

func TestDemo(t *testing.T) { suitetest.Run(t, "the demo") }

var _ = It("A demo that is interrupted reports the signal, not that something took too long", func(ctx SpecContext) {
	kubetest.Config(GinkgoTB()) // nothing in this cluster fills a ConfigMap
	output := gbytes.NewBuffer()
	d := &demo{Config: Config{Out: output}, samples: suitetest.Must(readSamples("../../samples", "localhost"))}
	d.samples.valid.Name = "demo-interrupted"                              // other suites create the sample
	list := os.Getenv(clientcmd.RecommendedConfigPathEnvVar) + ":/nowhere" // as kubectl, the demo reads a list
	GinkgoT().Setenv(clientcmd.RecommendedConfigPathEnvVar, list)
	running, interrupt := context.WithCancelCause(ctx)
	ended := make(chan error, 1)
	go func() {
		ended <- d.run(running, local.System{Kubeconfig: list})
	}()
	Eventually(output).Should(gbytes.Say("kind: ConfigMap"))
	DeferCleanup(func(ctx SpecContext) error { return d.removeEarlier(ctx) })
	interrupted := errors.New("interrupt")
	interrupt(interrupted)
	Eventually(ended).Should(Receive(Equal(interrupted)))
})

var _ = It("The control plane of a demo is used without a context of the user's kubeconfig", func() {
	kubetest.Config(GinkgoTB())
	d := &demo{kube: kube.Options{Context: "prod"}}
	d.useOwn(os.Getenv(clientcmd.RecommendedConfigPathEnvVar))
	Expect(d.kube.UserConfig()).Error().NotTo(HaveOccurred())
})

var _ = Describe("A demo that cannot start says so at once, with the way out", func() {
	start := func(ctx context.Context, host, kubeconfig string) error {
		config := local.DefaultConfig()
		config.Watcher.Kube.Kubeconfig = kubeconfig
		return Run(ctx, Config{Samples: "../../samples", Host: host, Out: GinkgoWriter}, config)
	}

	It("if the cluster of --kubeconfig does not answer", func(ctx SpecContext) {
		kubeconfig := clientcmdapi.NewConfig()
		kubeconfig.Clusters["gone"] = &clientcmdapi.Cluster{Server: "https://127.0.0.1:1"}
		kubeconfig.Contexts["gone"] = &clientcmdapi.Context{Cluster: "gone"}
		kubeconfig.CurrentContext = "gone"
		path := filepath.Join(GinkgoT().TempDir(), "kubeconfig")
		Expect(clientcmd.WriteToFile(*kubeconfig, path)).To(Succeed())
		Expect(start(ctx, "localhost", path)).To(MatchError(And(
			HavePrefix("use the cluster of --kubeconfig (without it, the demo starts its own): "),
			HaveSuffix("127.0.0.1:1: connect: connection refused"))))
	}, SpecTimeout(time.Minute))

	It("if the name of its web servers has no address here, whatever cluster KUBECONFIG names", func(ctx SpecContext) {
		GinkgoT().Setenv(clientcmd.RecommendedConfigPathEnvVar, "/production")
		Expect(start(ctx, "192.0.2.1", "")).To(MatchError(HaveSuffix(" (choose another name with --host)")))
		Expect(new(local.Config).Watcher.Kube.File()).To(BeEmpty(), "the cluster that services would use")
	})

	It("if a port of its web servers is in use", func(ctx SpecContext) {
		other := suitetest.Must(net.Listen("tcp", "127.0.0.1:0"))
		DeferCleanup(other.Close)
		_, port, _ := net.SplitHostPort(other.Addr().String())
		d := &demo{Config: Config{Host: "127.0.0.1"}}
		Expect(d.tryPort(ctx, port)).To(MatchError(HaveSuffix(" (end the other demo or program that uses it)")))
	})
})

var _ = It("The environment of another installation does not reach the curlctl of the demo", func() {
	GinkgoT().Setenv("CURLMETHAT_NAMESPACE", "prod")
	GinkgoT().Setenv("CURLMETHAT_NATS_NKEY", "prod.nk")
	Expect((&demo{}).environment()).NotTo(ContainElement(HavePrefix("CURLMETHAT_")))
	installed := (&demo{Config: Config{Installed: true}}).environment()
	Expect(installed).To(ContainElements(HavePrefix("PATH="), "CURLMETHAT_NATS_NKEY=prod.nk"))
	Expect(installed).NotTo(ContainElement(HavePrefix("CURLMETHAT_NAMESPACE=")))
})
