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

var _ = Describe("The watcher's process", Ordered, func() {
	var binary string

	BeforeAll(func() {
		binary = must(gexec.Build("github.com/kv8s/curl-me-that/watcher/cmd/watcher"))
		DeferCleanup(gexec.CleanupBuildArtifacts)
	})

	run := func(env []string, args ...string) *gexec.Session {
		GinkgoHelper()
		command := exec.Command(binary, args...)
		command.Env = append(os.Environ(), env...)
		session := must(gexec.Start(command, GinkgoWriter, GinkgoWriter))
		DeferCleanup(func() { session.Kill().Wait() })
		return session
	}

	DescribeTable("reports an invalid setting in one sentence",
		func(sentence string, env []string, args ...string) {
			session := run(env, args...)
			Eventually(session).Should(gexec.Exit(1))
			Expect(string(session.Err.Contents())).To(MatchRegexp(`(?m)^watcher: ` + sentence + `\n\z`))
		},
		Entry("a flag", "--workers: 0 is less than 1", nil, "--workers=0"),
		Entry("its environment variable", "--workers: 0 is less than 1", []string{"CURLMETHAT_WORKERS=0"}),
		Entry("a missing kubeconfig", "read kubeconfig /does/not/exist: .*no such file or directory", nil,
			"--kubeconfig=/does/not/exist"),
	)

	It("publishes, and ends with 0 after SIGTERM", func(ctx SpecContext) {
		w := newWorld(ctx)
		broker := pipelinetest.Broker(GinkgoTB(), natstest.Options{Listen: true})
		w.create(ctx, "cm", "k=example.com")
		session := run([]string{"CURLMETHAT_NAMESPACES=" + w.namespace, "CURLMETHAT_LISTEN=127.0.0.1:0"},
			"--nats-url="+broker.URL(), "--leader-elect", "--leader-elect-namespace="+w.namespace)
		Eventually(session.Err).Should(gbytes.Say("publishing what is wanted"))
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
