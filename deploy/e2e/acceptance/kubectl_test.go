package acceptance_test

import (
	"os"
	"os/exec"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/process"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
)

// run starts one of our programs and stops it at the end of the spec.
func run(name string, environment []string, args ...string) *process.Process {
	GinkgoHelper()
	p := suitetest.Must(process.Start(process.Program{Name: name, Path: env.Program(name), Args: args, Env: environment}))
	DeferCleanup(func() {
		if p.Running() {
			Expect(p.Kill()).To(Succeed())
		}
		if CurrentSpecReport().Failed() {
			AddReportEntry("log of "+name, ReportEntryVisibilityFailureOrVerbose, p.Log.String())
		}
	})
	return p
}

var _ = It("kubectl finds curlctl as a plugin and completes its arguments with live names", func(ctx SpecContext) {
	w := env.World(ctx, world.Options{})
	tools := GinkgoT().TempDir()
	for name, path := range map[string]string{
		"kubectl": world.Kubectl(), "kubectl-curl_me_that": w.Program("curlctl"),
		"kubectl_complete-curl_me_that": "../../curlctl/kubectl/kubectl_complete-curl_me_that",
	} {
		Expect(os.Symlink(suitetest.Must(filepath.Abs(path)), filepath.Join(tools, name))).To(Succeed())
	}
	w.Create(ctx, "failing", world.Asking("mydata="+w.Origin.Page("/nothing").URL())).
		EventuallyHasEvents(ctx, "BadStatus")
	for command, said := range map[string]string{
		"curl-me-that status $NAMESPACE/failing":   "gave up",
		"curl-me-that --help":                      "kubectl curl-me-that [command]",
		"__complete curl-me-that failures show ''": "1\tBadStatus " + w.Namespace + "/failing",
	} {
		shell := exec.CommandContext(ctx, "sh", "-c", "kubectl "+command+" 2>/dev/null")
		shell.Env = append(os.Environ(), "PATH="+tools+":"+os.Getenv("PATH"), "NAMESPACE="+w.Namespace,
			"KUBECONFIG="+w.Cluster.Kubeconfig, "CURLMETHAT_NATS_URL="+w.Broker())
		out, err := shell.Output()
		Expect(err).NotTo(HaveOccurred(), command)
		Expect(string(out)).To(ContainSubstring(said), command)
	}
})
