package acceptance_test

import (
	"context"
	"net"
	"net/http"
	"net/http/cookiejar"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/process"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	"github.com/kv8s/curl-me-that/proto/pipeline"
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

	It("such as no cluster ends the program and says what to do", func(ctx SpecContext) {
		for _, name := range []string{world.Watcher, world.Writer} {
			flags := []string{"--listen=", "--nats-url=" + nowhere()}
			shouldSay(ctx, run(name, nil, flags...), "KUBECONFIG")
			shouldSay(ctx, run(name, nil, append(flags, "--kubeconfig=/no/such/file")...), "/no/such/file")
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

var _ = Describe("All services in one process", func() {
	It("lose nothing under load when stopped and after kill -9", func(ctx SpecContext) {
		w := env.World(ctx, world.Options{Without: world.Services()})
		w.Unfinished() // the streams are in that process
		data := GinkgoT().TempDir()
		start := func() *process.Process {
			GinkgoHelper()
			p := run(allInOne, []string{"KUBECONFIG=" + env.Cluster.Kubeconfig, "HOME=" + data},
				"--data-dir="+data, "--namespaces="+w.Namespace, "--allow-cidr=127.0.0.0/8,::1/128")
			Eventually(func() []string { return p.Log.Matching("Ready") }).ShouldNot(BeEmpty())
			return p
		}
		load := w.Begin(ctx, 150)
		for n := range 2 {
			p := start()
			load.EventuallyFills(ctx, 20+40*n)
			Expect(p.Stop(ctx)).To(BeZero())
			Expect(load.MostHits()).To(BeNumerically("<=", 1))
		}
		p := start()
		load.EventuallyFills(ctx, 100)
		Expect(p.Kill()).To(Succeed())
		start()
		// A service that rejects a message just as the broker stops gets it again only after AckWait, as if it
		// had been killed.
		Eventually(load.Filled).WithTimeout(2 * pipeline.AckWait).Should(Equal(150))
		Expect(load.MostHits()).To(BeNumerically("<=", 2))
		w.EventuallyCaughtUp(ctx)
		for _, cm := range load.ConfigMaps {
			Expect(w.History.Writes(cm.Name)).To(Equal(1))
		}
	})
})

var _ = Describe("The demo", func() {
	It("runs all chapters without kubectl, and serves the console until interrupted", func(ctx SpecContext) {
		cmd, printed := demo(ctx, GinkgoT().TempDir()), gbytes.NewBuffer()
		cmd.Stdout, cmd.Stderr = printed, printed
		Expect(cmd.Start()).To(Succeed())
		DeferCleanup(func() {
			if cmd.ProcessState == nil {
				_ = cmd.Process.Signal(os.Interrupt) // the demo shuts down
				_ = cmd.Wait()
			}
		})
		address := regexp.MustCompile(`The console of nats://\S+ is at (http://\S+)`)
		Eventually(ctx, printed).WithTimeout(2 * time.Minute).Should(gbytes.Say(address.String()))
		out := string(printed.Contents())
		Expect(out).To(MatchRegexp(`(?s)1\. .*joke: \|\n {4}\S.*` +
			`2\. .*InvalidAnnotation.*does not match expected format\s+key=url.*` +
			`3\. .*ctl failures .*ConnectFailed.*curl-me-that-down.*` +
			`4\. .*ctl replay .*1 fetched.*joke: \|\n {4}\S.*` +
			`5\. .*kind: Watcher.*\nNAME +READY +FRESH +FETCHED .*\n\S+ +True +True +1/1 ` +
			`+watched-config .*joke: \|\n {4}\S.*`))
		Expect(out).NotTo(ContainSubstring("$ kubectl"), "no kubectl is installed")
		// tables adapt only to a terminal
		aPathOrTable := Or(ContainSubstring(os.TempDir()), ContainSubstring("http://"), MatchRegexp(`^(ID|\d+) `))
		fits := WithTransform(func(line string) int { return len(line) }, BeNumerically("<=", 80)) // the narrowest terminal
		Expect(strings.Split(out, "\n")).To(HaveEach(Or(aPathOrTable, fits)))

		at := address.FindStringSubmatch(out)[1]
		jar := suitetest.Must(cookiejar.New(nil))
		person := &http.Client{Jar: jar}
		r := suitetest.Must(person.Get(at))
		Expect(r.Body.Close()).To(Succeed())
		Expect(r.StatusCode).To(Equal(http.StatusOK))
		Expect(cmd.Process.Signal(os.Interrupt)).To(Succeed())
		Expect(cmd.Wait()).To(Succeed(), string(printed.Contents()))
		_, err := person.Get(at)
		Expect(err).To(MatchError(syscall.ECONNREFUSED))
	})
})

// demo returns the command for the demo, with a PATH of one folder. A demo of the developer does not use
// 127.0.0.2.
func demo(ctx context.Context, path string) *exec.Cmd {
	GinkgoHelper()
	if os.Getenv("KUBEBUILDER_ASSETS") == "" || runtime.GOOS != "linux" {
		Skip("the demo needs KUBEBUILDER_ASSETS for its own control plane, and Linux for 127.0.0.2")
	}
	cmd := exec.CommandContext(ctx, env.Program(allInOne), "demo", "--host=127.0.0.2", "--samples=../../samples")
	cmd.Env = append(slices.DeleteFunc(os.Environ(), func(variable string) bool {
		return strings.HasPrefix(variable, "KUBECONFIG=") || strings.HasPrefix(variable, "PATH=")
	}), "PATH="+path)
	return cmd
}
