package watcher_test

import (
	"os"
	"os/exec"
	"syscall"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"
	"github.com/onsi/gomega/gexec"

	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/pipeline/natstest"
	"github.com/kv8s/curl-me-that/proto/pipeline/pipelinetest"
)

var _ = Describe("The watcher's process", func() {
	It("publishes, and ends with 0 after SIGTERM", func(ctx SpecContext) {
		binary := must(gexec.Build("github.com/kv8s/curl-me-that/watcher/cmd/watcher"))
		DeferCleanup(gexec.CleanupBuildArtifacts)
		w := newWorld(ctx)
		broker := pipelinetest.Broker(GinkgoTB(), natstest.Options{Listen: true})
		w.create(ctx, "cm", "k=example.com")
		command := exec.Command(binary, "--nats-url="+broker.URL(), "--leader-elect", "--leader-elect-namespace="+w.namespace)
		command.Env = append(os.Environ(), "CURLMETHAT_NAMESPACES="+w.namespace, "CURLMETHAT_LISTEN=127.0.0.1:0")
		session := must(gexec.Start(command, GinkgoWriter, GinkgoWriter))
		DeferCleanup(func() { session.Kill().Wait() })
		Eventually(session.Err).Should(gbytes.Say("publishing wants"))
		client := pipeline.NewClient(pipelinetest.Connect(GinkgoTB(), broker))
		Eventually(func() (*v1.Want, error) {
			want, _, err := client.LastWant(ctx, w.key("cm", "k"))
			return want, err
		}).ShouldNot(BeNil())
		session.Signal(syscall.SIGTERM)
		Eventually(session).Should(gexec.Exit(0))
		Expect(session.Err).To(gbytes.Say("stopped"))
	})
})
