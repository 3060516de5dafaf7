package acceptance_test

import (
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/process"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
	"github.com/kv8s/curl-me-that/proto/suitetest"
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

// nowhere returns a loopback address without a listener.
func nowhere() string { return "nats://" + env.FreeAddress() }

var _ = Describe("A configuration error", func() {
	DescribeTable("ends the program with one sentence", func(ctx SpecContext, name string, args []string, said string) {
		if name == allInOne {
			args = append(args, "--data-dir="+GinkgoT().TempDir())
		} else {
			args = append([]string{"--listen=", "--nats-url=" + nowhere()}, args...)
		}
		if name != world.Fetcher &&
			!slices.ContainsFunc(args, func(a string) bool { return strings.HasPrefix(a, "--kubeconfig") }) {
			args = append(args, "--kubeconfig="+env.Cluster.Kubeconfig)
		}
		shouldSay(ctx, run(name, nil, args...), said)
	},
		Entry("an unknown flag", world.Watcher, []string{"--no-such-flag"}, "unknown flag: --no-such-flag"),
		Entry("an unknown flag", world.Fetcher, []string{"--no-such-flag"}, "unknown flag: --no-such-flag"),
		Entry("an unknown flag", world.Writer, []string{"--no-such-flag"}, "unknown flag: --no-such-flag"),
		Entry("an unknown flag", allInOne, []string{"--no-such-flag"}, "unknown flag: --no-such-flag"),
		Entry("an extra argument", world.Fetcher, []string{"please"}, "please"),
		Entry("an invalid duration", world.Watcher, []string{"--coalesce=fast"}, "--coalesce"),
		Entry("a number out of range", world.Writer, []string{"--concurrency=0"}, "--concurrency"),
		Entry("a number out of range", world.Fetcher, []string{"--timeout=10h"}, "--timeout"),
		Entry("a protected namespace", world.Watcher, []string{"--namespaces=kube-system"}, "kube-system"),
		Entry("an invalid namespace", world.Watcher, []string{"--namespaces=Not_One"}, "Not_One"),
		Entry("an invalid selector", world.Watcher, []string{"--selector=a in (b"}, "--selector"),
		Entry("an invalid address range", world.Fetcher, []string{"--allow-cidr=300.0.0.0/8"}, "allow-cidr"),
		Entry("an unknown scheme", world.Writer, []string{"--default-scheme=gopher"}, "gopher"),
		Entry("an unknown log level", world.Writer, []string{"--log-level=loud"}, "loud"),
		Entry("a missing kubeconfig", world.Watcher, []string{"--kubeconfig=/no/such/file"}, "/no/such/file"),
		Entry("a missing kubeconfig", world.Writer, []string{"--kubeconfig=/no/such/file"}, "/no/such/file"),
		Entry("a missing kubeconfig", allInOne, []string{"--kubeconfig=/no/such/file"}, "/no/such/file"),
		Entry("an empty kubeconfig", world.Writer, []string{"--kubeconfig=/dev/null"}, "/dev/null"),
		Entry("an incomplete NATS address", world.Fetcher, []string{"--nats-url=nats://"}, "--nats-url"),
		Entry("missing NATS credentials", world.Fetcher, []string{"--nats-creds=/no/such/creds"}, "/no/such/creds"),
		Entry("a certificate without its key", world.Fetcher, []string{"--nats-cert=/dev/null"}, "--nats-key"),
		Entry("an invalid listen address", world.Watcher, []string{"--listen=somewhere"}, "--listen"),
	)

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
			shouldSay(ctx, run(name, nil, "--listen=", "--nats-url="+nowhere()), "KUBECONFIG")
		}
	})

	It("such as a data directory in use ends the second program with one sentence", func(ctx SpecContext) {
		data := GinkgoT().TempDir()
		environment := []string{"KUBECONFIG=" + env.Cluster.Kubeconfig}
		first := run(allInOne, environment, "--data-dir="+data, "--namespaces=curl-me-that-e2e-none")
		Eventually(func() []string { return first.Log.Matching("Ready") }).ShouldNot(BeEmpty())
		shouldSay(ctx, run(allInOne, environment, "--data-dir="+data, "--namespaces=curl-me-that-e2e-none"), data)
		Expect(first.Running()).To(BeTrue())
		Expect(first.Stop(ctx)).To(BeZero())
	})
})

// shouldSay waits until the program exits by itself, with one sentence.
func shouldSay(ctx SpecContext, p *process.Process, sentence string) {
	GinkgoHelper()
	Eventually(p.Running).Should(BeFalse(), "%s %v still runs", p.Name, p.Args)
	Expect(p.Wait(ctx)).To(BeNumerically(">", 0))
	said := slices.DeleteFunc(p.Log.Lines(), func(line string) bool { return strings.HasPrefix(line, "{") }) // the log
	Expect(said).To(HaveLen(1), "%s %v", p.Name, p.Args)
	Expect(said[0]).To(And(HavePrefix(p.Name+": "), ContainSubstring(sentence)))
	Expect(len(said[0])).To(BeNumerically("<", 400), "%s", said[0])
}

// eventuallySilent waits until a program has logged nothing for a while.
func eventuallySilent(p *process.Process) {
	GinkgoHelper()
	lines, since := p.Log.Count(), time.Now()
	Eventually(func() time.Duration {
		if now := p.Log.Count(); now != lines {
			lines, since = now, time.Now()
		}
		return time.Since(since)
	}).Should(BeNumerically(">", 2*aWhile), "time without a line in the log")
}

var _ = Describe("A service whose dependency is unavailable at start", func() {
	DescribeTable("waits for it and logs that once", func(ctx SpecContext, name string) {
		address := env.FreeAddress()
		p := run(name, []string{"KUBECONFIG=" + env.Cluster.Kubeconfig}, "--listen="+address,
			"--nats-url=nats://user:secret@"+env.FreeAddress())
		Eventually(func() []string { return p.Log.Matching("no connection to NATS") }).Should(HaveLen(1))
		eventuallySilent(p)
		Expect(p.Log.Matching("no connection to NATS")).To(HaveLen(1))
		Expect(p.Log.Matching("secret")).To(BeEmpty())
		Eventually(func() error { return world.Ready(ctx, address) }).Should(MatchError(ContainSubstring("nats")))
		Expect(p.Stop(ctx)).To(BeZero())
	},
		Entry("NATS, for the watcher", world.Watcher),
		Entry("NATS, for the fetcher", world.Fetcher),
		Entry("NATS, for the writer", world.Writer),
	)

	It("waits for the API server", func(ctx SpecContext) {
		w := env.World(ctx, world.Options{Without: world.Services()})
		kubeconfig := filepath.Join(GinkgoT().TempDir(), "kubeconfig")
		Expect(os.WriteFile(kubeconfig, []byte(`{"apiVersion":"v1","kind":"Config","current-context":"c",
			"clusters":[{"name":"c","cluster":{"server":"http://`+env.FreeAddress()+`"}}],
			"contexts":[{"name":"c","context":{"cluster":"c"}}]}`), 0o600)).To(Succeed())
		for _, name := range []string{world.Watcher, world.Writer} {
			s := w.Launch(ctx, name, "--kubeconfig="+kubeconfig)
			Eventually(func() error { return world.Ready(ctx, s.Address) }).Should(MatchError(ContainSubstring("not ready")))
			Consistently(s.Running).WithTimeout(3 * aWhile).Should(BeTrue())
			Expect(s.Log.Count()).To(BeNumerically("<", 20))
			s.ShouldStop(ctx)
		}
		w.Unfinished()
	})
})
