package acceptance_test

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/process"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
)

// allInOne is the program that runs all services in one process.
const allInOne = "curl-me-that"

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

// nowhere returns a NATS URL without a listener.
func nowhere() string { return "nats://" + env.FreeAddress() }

var _ = Describe("A configuration error", func() {
	It("such as a port in use ends the program with one sentence", func(ctx SpecContext) {
		listener := suitetest.Must(net.Listen("tcp", "127.0.0.1:0"))
		DeferCleanup(listener.Close)
		taken := listener.Addr().String()
		for _, name := range world.Services() {
			shouldSay(ctx, run(name, []string{"KUBECONFIG=" + env.Cluster.Kubeconfig}, "--listen="+taken,
				"--nats-url="+nowhere()), taken)
		}
		for _, flag := range []string{"--listen=", "--nats-listen="} {
			shouldSay(ctx, run(allInOne, []string{"KUBECONFIG=" + env.Cluster.Kubeconfig}, flag+taken,
				"--data-dir="+GinkgoT().TempDir()), taken)
		}
	})
})

// shouldSay waits until the program exits by itself, and expects one sentence on standard error.
func shouldSay(ctx SpecContext, p *process.Process, sentence string) {
	GinkgoHelper()
	Eventually(p.Running).Should(BeFalse(), "%s %v still runs", p.Name, p.Args)
	Expect(p.Wait(ctx)).To(BeNumerically(">", 0))
	said := slices.DeleteFunc(p.Log.Lines(), func(line string) bool { return strings.HasPrefix(line, "{") }) // the log
	Expect(said).To(HaveLen(1), "%s %v", p.Name, p.Args)
	Expect(said[0]).To(And(HavePrefix(p.Name+": "), ContainSubstring(sentence)))
	Expect(len(said[0])).To(BeNumerically("<", 400), "%s", said[0])
}

var _ = Describe("A service that starts before the API server", func() {
	It("waits for it, with few log lines", func(ctx SpecContext) {
		w := env.World(ctx, world.Options{Without: world.Services()})
		kubeconfig := filepath.Join(GinkgoT().TempDir(), "kubeconfig")
		Expect(os.WriteFile(kubeconfig, []byte(`{"apiVersion":"v1","kind":"Config","current-context":"c",
			"clusters":[{"name":"c","cluster":{"server":"http://`+env.FreeAddress()+`"}}],
			"contexts":[{"name":"c","context":{"cluster":"c"}}]}`), 0o600)).To(Succeed())
		for _, name := range []string{world.Watcher, world.Writer} {
			s := w.Launch(ctx, name, "--kubeconfig="+kubeconfig)
			Eventually(func() error { return s.Ready(ctx) }).Should(MatchError(ContainSubstring("not ready")))
			Consistently(s.Running).WithTimeout(aWhile).Should(BeTrue())
			Expect(s.Log.Count()).To(BeNumerically("<", 20))
			s.ShouldStop(ctx)
		}
		w.Unfinished()
	})
})

var _ = Describe("kubectl", func() {
	It("finds curlctl as a plugin and completes its arguments with live names", func(ctx SpecContext) {
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
})
