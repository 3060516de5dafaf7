package process_test

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"
	"github.com/onsi/gomega/gexec"

	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
)

// broker accepts one connection like a NATS server of a version, sends more once the client is connected, and returns
// its address.
func broker(version, more string) string {
	GinkgoHelper()
	listener := suitetest.Must(net.Listen("tcp", "127.0.0.1:0"))
	DeferCleanup(listener.Close)
	go func() {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		_, _ = fmt.Fprintf(conn, `INFO {"version":%q,"headers":true,"max_payload":1048576}`+"\r\n", version)
		for lines := bufio.NewScanner(conn); lines.Scan(); {
			if lines.Text() == "PING" {
				_, _ = fmt.Fprint(conn, "PONG\r\n"+more)
			}
		}
	}()
	return "nats://" + listener.Addr().String()
}

var _ = Describe("a service as a process", func() {
	It("reads each flag from its environment variable, and prefers the command line", func() {
		env := []string{"CURLMETHAT_GREETING=from the environment"}
		Eventually(run(env, "--log-format", "json", "--nats-url",
			"nats://127.0.0.1:1")).Should(gbytes.Say("greeting: from the environment"))
		Eventually(run(env, "--greeting", "from the flag", "--nats-url",
			"nats://127.0.0.1:1")).Should(gbytes.Say("greeting: from the flag"))
	})

	It("warns of a version of NATS with a known fault", func() {
		session := run(nil, "--log-format", "json", "--nats-url", broker("2.14.6", ""))
		Eventually(session.Err).Should(gbytes.Say(`"warn".*upgrade NATS 2.14.6 to 2.14.7 or newer: it leaks`))
	})

	It("exits with 1 after an error of NATS that ends the connection for good", func() {
		session := run(nil, "--nats-url", broker("2.15.3", "-ERR 'Maximum Payload Violation'\r\n"))
		Eventually(session).Should(gexec.Exit(1))
		Expect(session.Err).To(gbytes.Say("NATS closed the connection for good: nats: Maximum Payload Violation"))
	})

	It("names the environment variables in its help", func() {
		session := run(nil, "--help")
		Eventually(session).Should(gexec.Exit(0))
		Expect(string(session.Out.Contents())).To(ContainSubstring("[CURLMETHAT_NATS_URL]"))
	})

	DescribeTable("reports an invalid flag in one sentence, and exits with 1:", func(env []string, args []string,
		sentence string,
	) {
		session := run(env, args...)
		Eventually(session).Should(gexec.Exit(1))
		Expect(strings.TrimSpace(string(session.Err.Contents()))).To(Equal("toy: " + sentence))
	},
		Entry("an argument", nil, []string{"wrong"}, `unknown command "wrong" for "toy"`),
		Entry("a level", nil, []string{"--log-level", "loud"}, `--log-level: "loud" is not one of debug, info, warn, error`),
		Entry("a format", nil, []string{"--log-format", "xml"}, `--log-format: "xml" is not one of json, console, auto`),
		Entry("an address of NATS", nil, []string{"--nats-url", "nats://user:secret@"},
			`--nats-url: "nats://" is not an address such as nats://nats:4222`),
		Entry("a password with a comma", nil, []string{"--nats-url", "nats://nats:4222,nats://user:sec,ret@nats2:4222"},
			`--nats-url: "nats://nats:4222,nats://nats2:4222" is not an address such as nats://nats:4222`),
		Entry("a scheme in capitals", nil, []string{"--nats-url", "nats://nats:4222,NATS://user:secret@"},
			`--nats-url: "nats://nats:4222,NATS://" is not an address such as nats://nats:4222`),
		Entry("a file", nil, []string{"--nats-creds", "/nowhere"},
			"--nats-creds: stat /nowhere: no such file or directory (give the path of an existing file)"),
		Entry("a certificate without its key", nil, []string{"--nats-cert", "/dev/null"},
			"--nats-cert and --nats-key must be set together"),
		Entry("an address to listen at", nil, []string{"--listen", "nowhere"},
			"--listen: listen tcp: address nowhere: missing port in address"),
		Entry("an address for metrics to listen at", nil, []string{"--metrics-listen", "nowhere"},
			"--metrics-listen: listen tcp: address nowhere: missing port in address"),
	)

	DescribeTable("names the help after a wrong flag, and exits with 2:", func(arg, sentence string) {
		session := run(nil, arg)
		Eventually(session).Should(gexec.Exit(2))
		Expect(strings.TrimSpace(string(session.Err.Contents()))).To(Equal("toy: " + sentence + "; see `toy --help`"))
	},
		Entry("that is unknown", "--wrong", "unknown flag: --wrong"),
		Entry("that is a number", "--count=many", `--count: "many" is not a number`),
	)

	It("exits with 2 after a wrong environment variable, too", func() {
		session := run([]string{"CURLMETHAT_COUNT=many"})
		Eventually(session).Should(gexec.Exit(2))
		Expect(string(session.Err.Contents())).
			To(Equal(`toy: environment variable CURLMETHAT_COUNT: "many" is not valid for --count` + "\n"))
	})

	It("waits for NATS, logs that once, and ends at once on a signal", func() {
		session := run(nil, "--log-format", "json", "--nats-url", "nats://user:secret@127.0.0.1:1")
		Eventually(session.Err).Should(gbytes.Say("no connection to NATS, retrying"))
		Consistently(session.Err).WithTimeout(2 * time.Second).ShouldNot(gbytes.Say("no connection to NATS"))
		session.Terminate()
		Eventually(session).Should(gexec.Exit(0))
		Expect(string(session.Err.Contents())).NotTo(ContainSubstring("secret"))
	})

	// status returns a function that returns the status code at an address, or 0 if nothing listens.
	status := func(address, path string) func() int {
		return func() int {
			response, err := http.Get("http://" + address + path)
			if err != nil {
				return 0
			}
			_ = response.Body.Close()
			return response.StatusCode
		}
	}

	It("serves metrics and, with --profiling, profiles at --metrics-listen only, if that is set", func() {
		health, metrics := freeAddress(), freeAddress()
		apart := run(nil, "--nats-url", "nats://127.0.0.1:1", "--listen", health, "--metrics-listen", metrics)
		Eventually(status(metrics, "/metrics")).Should(Equal(http.StatusOK))
		Expect(status(metrics, "/healthz")()).To(Equal(http.StatusNotFound))
		Expect(status(health, "/healthz")()).To(Equal(http.StatusOK))
		Expect(status(health, "/readyz")()).To(Equal(http.StatusServiceUnavailable))
		Expect(status(health, "/metrics")()).To(Equal(http.StatusNotFound))
		Expect(status(metrics, "/debug/pprof/")()).To(Equal(http.StatusNotFound))
		apart.Terminate()
		Eventually(apart).Should(gexec.Exit(0))

		alone := run(nil, "--nats-url", "nats://127.0.0.1:1", "--metrics-listen", metrics)
		Eventually(status(metrics, "/metrics")).Should(Equal(http.StatusOK))
		alone.Terminate()
		Eventually(alone).Should(gexec.Exit(0))

		run(nil, "--nats-url", "nats://127.0.0.1:1", "--listen", health, "--metrics-listen", metrics, "--profiling")
		Eventually(status(metrics, "/debug/pprof/heap")).Should(Equal(http.StatusOK))
		Expect(status(health, "/debug/pprof/heap")()).To(Equal(http.StatusNotFound))
	})

	DescribeTable("drains at the first signal and exits at once at the second", func(sent syscall.Signal) {
		signal.Notify(make(chan os.Signal, 1), sent) // also if the specs run with nohup
		DeferCleanup(signal.Reset, sent)
		session := run(nil, "--log-format", "json", "--nats-url", "nats://127.0.0.1:1", "--stubborn")
		Eventually(session.Err).Should(gbytes.Say("stubborn"))
		session.Signal(sent)
		Eventually(session.Err).Should(gbytes.Say("draining"))
		Consistently(session).WithTimeout(300 * time.Millisecond).ShouldNot(gexec.Exit())
		session.Signal(sent)
		Eventually(session).Should(gexec.Exit(128 + int(sent)))
	},
		Entry("of kill", syscall.SIGTERM),
		Entry("of a terminal that is closed", syscall.SIGHUP),
	)

	It("goes on after its terminal is closed, if it runs with nohup", func() {
		signal.Ignore(syscall.SIGHUP)
		DeferCleanup(signal.Reset, syscall.SIGHUP)
		session := run(nil, "--log-format", "json", "--nats-url", "nats://127.0.0.1:1", "--stubborn")
		Eventually(session.Err).Should(gbytes.Say("stubborn"))
		session.Signal(syscall.SIGHUP)
		Consistently(session.Err).WithTimeout(300 * time.Millisecond).ShouldNot(gbytes.Say("draining"))
		Expect(session).NotTo(gexec.Exit())
	})
})
