package main_test

import (
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"
	"github.com/onsi/gomega/gexec"

	"github.com/kv8s/curl-me-that/deploy/curlctl/broker"
	"github.com/kv8s/curl-me-that/deploy/local/controlplane"
	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
)

// startup limits the start and the stop of a control plane.
const startup = 2 * time.Minute

var _ = Describe("control-plane exec", func() {
	It("runs the command with a temporary control plane, and grant copies its files for a user", func() {
		dir, copies := GinkgoT().TempDir(), GinkgoT().TempDir()
		Expect(os.WriteFile(filepath.Join(dir, "replayer.nk"), []byte("seed"), 0o600)).To(Succeed())
		session := run(nil, "exec", "--", "sh", "-c", `set -e; echo "at $KUBECONFIG"
			"$KUBEBUILDER_ASSETS/kubectl" get namespace default --output=name
			"$0" grant --kubeconfig="$KUBECONFIG" --copy-to="$2/kubeconfig" --nats-url=nats://127.0.0.1:4222 `+
			`--copy-file="$1/replayer.nk=$2/nats.nk"`, binary, dir, copies)
		Eventually(session, startup).Should(gexec.Exit(0))
		Expect(session.Out).To(gbytes.Say("at /.+/kubeconfig\n"))
		Expect(session.Out).To(gbytes.Say("namespace/default\n"))
		Expect(session.Err).To(gbytes.Say("control plane ready in .*, kubeconfig /.*"))
		for name, text := range map[string]string{
			"nats.nk": "seed", broker.BesideKubeconfig: `{"url": "nats://127.0.0.1:4222"}`, "kubeconfig": "clusters:",
		} {
			path := filepath.Join(copies, name)
			Expect(os.ReadFile(path)).To(ContainSubstring(text))
			Expect(suitetest.Must(os.Stat(path)).Mode().Perm()).To(Equal(os.FileMode(0o600)))
		}
		home := regexp.MustCompile("kubeconfig (/.*)/kubeconfig").FindStringSubmatch(string(session.Err.Contents()))[1]
		Expect(home).NotTo(BeADirectory())
		Expect(running(home)).To(BeFalse())
	})

	It("uses the cluster of KUBECONFIG if it is set", func() {
		session := run([]string{"KUBECONFIG=/some/kubeconfig"}, "exec", "--", "sh", "-c", `echo "at $KUBECONFIG"`)
		Eventually(session).Should(gexec.Exit(0))
		Expect(session.Out).To(gbytes.Say("at /some/kubeconfig\n"))
		Expect(session.Err.Contents()).To(BeEmpty())
	})

	DescribeTable("exits like the command",
		func(script string, status int) {
			session := run([]string{"KUBECONFIG=/some/kubeconfig"}, "exec", "sh", "-c", script)
			Eventually(session).Should(gexec.Exit(status))
			Expect(session.Err.Contents()).To(BeEmpty())
		},
		Entry("with success", "exit 0", 0),
		Entry("with a status", "exit 7", 7),
		Entry("by a signal", "kill -KILL $$", 128+9),
	)

	DescribeTable("forwards signals",
		func(signal syscall.Signal, name string) {
			session := run([]string{"KUBECONFIG=/some/kubeconfig"}, "exec", "--", "sh", "-c",
				"trap 'echo got it; exit 5' "+name+"; echo waiting; while :; do sleep 0.1; done")
			Eventually(session).Should(gbytes.Say("waiting"))
			session.Signal(signal)
			Eventually(session).Should(gexec.Exit(5))
			Expect(session.Out).To(gbytes.Say("got it"))
		},
		Entry("to terminate", syscall.SIGTERM, "TERM"),
		Entry("to interrupt", syscall.SIGINT, "INT"),
	)

	It("goes on after its terminal is closed, if it runs with nohup", func() {
		signal.Ignore(syscall.SIGHUP)
		DeferCleanup(signal.Reset, syscall.SIGHUP)
		session := run([]string{"KUBECONFIG=/some/kubeconfig"}, "exec", "--", "sh", "-c",
			"trap 'exit 5' TERM; echo waiting; while :; do sleep 0.1; done")
		Eventually(session).Should(gbytes.Say("waiting"))
		session.Signal(syscall.SIGHUP)
		Consistently(session).WithTimeout(300 * time.Millisecond).ShouldNot(gexec.Exit())
		session.Terminate()
		Eventually(session).Should(gexec.Exit(5))
	})

	DescribeTable("rejects with one line",
		func(message string, args ...string) {
			session := run([]string{"KUBECONFIG=/some/kubeconfig"}, args...)
			Eventually(session).Should(gexec.Exit(1))
			Expect(string(session.Err.Contents())).To(MatchRegexp("^control-plane: [^\n]*" + message + "[^\n]*\n$"))
		},
		Entry("no command", "requires at least 1 arg", "exec"),
		Entry("an unknown command", "run the command: .*no-such-command", "exec", "--", "no-such-command"),
		Entry("an unknown flag", "unknown flag: --wrong", "exec", "--wrong"),
	)

	It("leaves no process behind even when killed", func() {
		if runtime.GOOS != "linux" {
			Skip("only Linux ends a process with its parent")
		}
		dir := GinkgoT().TempDir()
		session := run(nil, "exec", "--data-dir", dir, "--", "sh", "-c", "echo ready; exec sleep 600 "+dir)
		Eventually(session, startup).Should(gbytes.Say("ready"))
		Expect(running(dir)).To(BeTrue())
		session.Kill().Wait()
		Eventually(func() bool { return running(dir) }).Should(BeFalse())
	})
})

func TestCommand(t *testing.T) { suitetest.Run(t, "command control-plane") }

// asProgram is the environment variable that makes the binary of the specs the program.
const asProgram = "CONTROL_PLANE_PROGRAM"

var (
	binary   string
	binaries string
)

var _ = BeforeSuite(func() {
	binaries = suitetest.Must(controlplane.FindPrograms())
	binary = suitetest.Must(os.Executable())
})

// run starts the command without KUBECONFIG, and with the binaries of the suite. The variables take precedence.
func run(variables []string, args ...string) *gexec.Session {
	GinkgoHelper()
	command := exec.Command(binary, args...)
	for _, variable := range os.Environ() {
		if !strings.HasPrefix(variable, "KUBECONFIG=") {
			command.Env = append(command.Env, variable)
		}
	}
	command.Env = append(command.Env, controlplane.EnvDir+"="+binaries, asProgram+"=yes")
	command.Env = append(command.Env, variables...)
	session := suitetest.Must(gexec.Start(command, GinkgoWriter, GinkgoWriter))
	DeferCleanup(func() { session.Kill().Wait() })
	return session
}

// running reports whether the command line of any process contains the text.
func running(text string) bool {
	GinkgoHelper()
	output := suitetest.Must(exec.Command("ps", "-axww", "-o", "command=").Output())
	return strings.Contains(string(output), text)
}
