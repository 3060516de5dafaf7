package process_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"
	"github.com/onsi/gomega/gexec"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"github.com/kv8s/curl-me-that/deploy/testkit/natstest"
	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/process"
)

// toyEnv makes the test binary a service that does nothing.
const toyEnv = "CURL_ME_THAT_TOY"

func TestMain(m *testing.M) {
	if os.Getenv(toyEnv) != "" {
		os.Exit(process.Execute(newToy()))
	}
	os.Exit(m.Run())
}

func newToy() *cobra.Command {
	var options process.Options
	var greeting string
	var stubborn bool
	cmd := &cobra.Command{
		Use:  "toy",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			fmt.Println("greeting:", greeting)
			if stubborn {
				fmt.Fprintln(os.Stderr, "stubborn")
				<-cmd.Context().Done()
				fmt.Fprintln(os.Stderr, "draining")
				select {}
			}
			return options.Run(cmd.Context(), "toy", func(ctx context.Context, rt *process.Runtime) error {
				rt.Started()
				<-ctx.Done()
				return nil
			})
		},
	}
	options.BindFlags(cmd.Flags(), "")
	cmd.Flags().StringVar(&greeting, "greeting", "none", "what to print")
	cmd.Flags().Int("count", 1, "how often")
	cmd.Flags().BoolVar(&stubborn, "stubborn", false, "do not end when asked to")
	return cmd
}

// build returns the path of the toy, which is the test binary itself.
func build() string {
	GinkgoHelper()
	return suitetest.Must(os.Executable())
}

func run(path string, env []string, args ...string) *gexec.Session {
	GinkgoHelper()
	cmd := exec.Command(path, args...)
	cmd.Env = append(append(os.Environ(), toyEnv+"=1"), env...)
	session := suitetest.Must(gexec.Start(cmd, GinkgoWriter, GinkgoWriter))
	DeferCleanup(func() { session.Kill().Wait() })
	return session
}

// freeAddress returns a loopback address that was free a moment ago.
func freeAddress() string {
	GinkgoHelper()
	listener := suitetest.Must(net.Listen("tcp", "127.0.0.1:0"))
	defer listener.Close() //nolint:errcheck // it was never used
	return listener.Addr().String()
}

var _ = Describe("a service as a process", Ordered, func() {
	var toy string
	BeforeAll(func() { toy = build() })

	It("reads each flag from its environment variable, and prefers the command line", func() {
		env := []string{"CURLMETHAT_GREETING=from the environment"}
		Eventually(run(toy, env, "--log-format", "json", "--nats-url",
			"nats://127.0.0.1:1")).Should(gbytes.Say("greeting: from the environment"))
		Eventually(run(toy, env, "--greeting", "from the flag", "--nats-url",
			"nats://127.0.0.1:1")).Should(gbytes.Say("greeting: from the flag"))
	})

	It("warns of a version of NATS with a known fault", func() {
		listener := suitetest.Must(net.Listen("tcp", "127.0.0.1:0"))
		DeferCleanup(listener.Close)
		go func() {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_, _ = fmt.Fprint(conn, `INFO {"version":"2.14.6","headers":true,"max_payload":1048576}`+"\r\n")
			for lines := bufio.NewScanner(conn); lines.Scan(); {
				if lines.Text() == "PING" {
					_, _ = fmt.Fprint(conn, "PONG\r\n")
				}
			}
		}()
		session := run(toy, nil, "--log-format", "json", "--nats-url", "nats://"+listener.Addr().String())
		Eventually(session.Err).Should(gbytes.Say(`"warn".*upgrade NATS 2.14.6 to 2.14.7 or newer: it leaks`))
	})

	It("names the environment variables in its help", func() {
		session := run(toy, nil, "--help")
		Eventually(session).Should(gexec.Exit(0))
		Expect(string(session.Out.Contents())).To(ContainSubstring("[CURLMETHAT_NATS_URL]"))
	})

	DescribeTable("reports an invalid flag in one sentence, and exits with 1:", func(env []string, args []string,
		sentence string,
	) {
		session := run(toy, env, args...)
		Eventually(session).Should(gexec.Exit(1))
		Expect(strings.TrimSpace(string(session.Err.Contents()))).To(Equal("toy: " + sentence))
	},
		Entry("an argument", nil, []string{"wrong"}, `unknown command "wrong" for "toy"`),
		Entry("a level", nil, []string{"--log-level", "loud"}, `--log-level: "loud" is not one of debug, info, warn, error`),
		Entry("a format", nil, []string{"--log-format", "xml"}, `--log-format: "xml" is not one of json, console, auto`),
		Entry("an address of NATS", nil, []string{"--nats-url", "nats://user:secret@"},
			`--nats-url: "nats://" is not an address such as nats://nats:4222`),
		Entry("a file", nil, []string{"--nats-creds", "/nowhere"},
			"--nats-creds: stat /nowhere: no such file or directory (give the path of an existing file)"),
		Entry("a certificate without its key", nil, []string{"--nats-cert", "/dev/null"},
			"--nats-cert and --nats-key must be set together"),
		Entry("an address to listen at", nil, []string{"--listen", "nowhere"},
			"--listen: listen tcp: address nowhere: missing port in address"),
		Entry("an address for metrics to listen at", nil, []string{"--metrics-listen", "nowhere"},
			"--metrics-listen: listen tcp: address nowhere: missing port in address"),
		Entry("a variable", []string{"CURLMETHAT_COUNT=many"}, nil,
			`environment variable CURLMETHAT_COUNT: "many" is not valid for --count`),
	)

	DescribeTable("names the help after a wrong flag, and exits with 2:", func(arg, sentence string) {
		session := run(toy, nil, arg)
		Eventually(session).Should(gexec.Exit(2))
		Expect(strings.TrimSpace(string(session.Err.Contents()))).To(Equal("toy: " + sentence + "; see `toy --help`"))
	},
		Entry("that is unknown", "--wrong", "unknown flag: --wrong"),
		Entry("that is a number", "--count=many", `--count: "many" is not a number`),
	)

	It("waits for NATS, logs that once, and ends at once on a signal", func() {
		session := run(toy, nil, "--log-format", "json", "--nats-url", "nats://user:secret@127.0.0.1:1")
		Eventually(session.Err).Should(gbytes.Say("no connection to NATS, retrying"))
		Consistently(session.Err).WithTimeout(2 * time.Second).ShouldNot(gbytes.Say("no connection to NATS"))
		session.Terminate()
		Eventually(session).Should(gexec.Exit(0))
		Expect(string(session.Err.Contents())).NotTo(ContainSubstring("secret"))
	})

	// status returns a function that returns the status code at an address, or 0 if nothing
	// listens.
	status := func(ctx context.Context) func(address, path string) func() int {
		return func(address, path string) func() int {
			return func() int {
				request := suitetest.Must(http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+path, http.NoBody))
				response, err := http.DefaultClient.Do(request)
				if err != nil {
					return 0
				}
				_ = response.Body.Close()
				return response.StatusCode
			}
		}
	}

	It("serves metrics and, with --profiling, profiles at --metrics-listen only, if that is set", func(ctx SpecContext) {
		status := status(ctx)
		health, metrics := freeAddress(), freeAddress()
		apart := run(toy, nil, "--nats-url", "nats://127.0.0.1:1", "--listen", health, "--metrics-listen", metrics)
		Eventually(status(metrics, "/metrics")).Should(Equal(http.StatusOK))
		Expect(status(metrics, "/healthz")()).To(Equal(http.StatusNotFound))
		Expect(status(health, "/healthz")()).To(Equal(http.StatusOK))
		Expect(status(health, "/readyz")()).To(Equal(http.StatusServiceUnavailable))
		Expect(status(health, "/metrics")()).To(Equal(http.StatusNotFound))
		Expect(status(metrics, "/debug/pprof/")()).To(Equal(http.StatusNotFound))
		apart.Terminate()
		Eventually(apart).Should(gexec.Exit(0))

		alone := run(toy, nil, "--nats-url", "nats://127.0.0.1:1", "--metrics-listen", metrics)
		Eventually(status(metrics, "/metrics")).Should(Equal(http.StatusOK))
		alone.Terminate()
		Eventually(alone).Should(gexec.Exit(0))

		run(toy, nil, "--nats-url", "nats://127.0.0.1:1", "--listen", health, "--metrics-listen", metrics, "--profiling")
		Eventually(status(metrics, "/debug/pprof/heap")).Should(Equal(http.StatusOK))
		Expect(status(health, "/debug/pprof/heap")()).To(Equal(http.StatusNotFound))
	})

	It("drains at the first signal and exits at once at the second", func() {
		session := run(toy, nil, "--log-format", "json", "--nats-url", "nats://127.0.0.1:1", "--stubborn")
		Eventually(session.Err).Should(gbytes.Say("stubborn"))
		session.Signal(syscall.SIGTERM)
		Eventually(session.Err).Should(gbytes.Say("draining"))
		Consistently(session).WithTimeout(300 * time.Millisecond).ShouldNot(gexec.Exit())
		session.Signal(syscall.SIGTERM)
		Eventually(session).Should(gexec.Exit(128 + int(syscall.SIGTERM)))
	})
})

func TestProcess(t *testing.T) { suitetest.Run(t, "process") }

func readyz(h *process.Health, query string) (int, string) {
	response := httptest.NewRecorder()
	h.ServeHTTP(response, httptest.NewRequest(http.MethodGet, "/readyz"+query, nil))
	return response.Code, response.Body.String()
}

var _ = It("readiness lists all parts with ?verbose, or if one is not ready", func() {
	health := process.NewHealth()
	nats := health.Part("nats")
	cache := health.Group("watcher").Part("cache")
	code, text := readyz(health, "")
	Expect(code).To(Equal(503))
	Expect(text).To(Equal("[-]nats not ready: starting\n[-]watcher/cache not ready: starting\nnot ready"))

	nats.Ready()
	cache.NotReady("the API server does not respond")
	code, text = readyz(health, "")
	Expect(code).To(Equal(503))
	Expect(text).To(ContainSubstring("[+]nats ok\n[-]watcher/cache not ready: the API server does not respond\n"))

	cache.Ready()
	Expect(health.Ready()).To(BeTrue())
	code, text = readyz(health, "")
	Expect(code).To(Equal(200))
	Expect(text).To(Equal("ok"))
	_, text = readyz(health, "?verbose")
	Expect(text).To(Equal("[+]nats ok\n[+]watcher/cache ok\n" + "ok"))
})

// serveHealth serves health like a service, and returns its port.
func serveHealth(handler http.Handler) string {
	GinkgoHelper()
	listener := suitetest.Must(net.Listen("tcp", "127.0.0.1:0"))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- process.Serve(ctx, listener, handler) }()
	DeferCleanup(func() {
		cancel()
		Eventually(ended).Should(Receive(Succeed()))
	})
	_, port, err := net.SplitHostPort(listener.Addr().String())
	Expect(err).NotTo(HaveOccurred())
	return port
}

var _ = Describe("the health check of a service", Ordered, func() {
	var toy string
	BeforeAll(func() { toy = build() })

	exits := func(code int, env []string, args ...string) string {
		GinkgoHelper()
		session := run(toy, env, append([]string{"healthcheck"}, args...)...)
		Eventually(session).Should(gexec.Exit(code))
		Expect(session.Out.Contents()).To(BeEmpty())
		return strings.TrimSpace(string(session.Err.Contents()))
	}

	It("succeeds if the process is ready, wherever it listens", func() {
		port := serveHealth(process.Handler(process.NewHealth(), prometheus.NewRegistry()))
		Expect(exits(0, nil, "--listen", ":"+port)).To(BeEmpty())
		Expect(exits(0, nil, "--listen", "0.0.0.0:"+port)).To(BeEmpty())
		Expect(exits(0, []string{"CURLMETHAT_LISTEN=127.0.0.1:" + port})).To(BeEmpty())
		Expect(exits(0, []string{"HTTP_PROXY=http://127.0.0.1:1", "NO_PROXY="}, "--listen", "localhost:"+port)).To(BeEmpty())
	})

	It("names the parts that are not ready in one sentence", func() {
		health := process.NewHealth()
		health.Part("nats").NotReady("no connection to NATS")
		health.Part("cache").Ready()
		health.Part("running")
		port := serveHealth(process.Handler(health, prometheus.NewRegistry()))
		Expect(exits(1, nil, "--listen",
			":"+port)).To(Equal("toy: healthcheck: not ready: nats (no connection to NATS), running (starting)"))
	})

	It("fails if the process hangs", func() {
		port := serveHealth(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
		Expect(exits(1, nil, "--listen", ":"+port)).To(Equal("toy: healthcheck: no response at :" + port +
			" within 3s"))
	})

	DescribeTable("reports in one sentence why it got no response:", func(listen, sentence string) {
		Expect(exits(1, nil, "--listen", listen)).To(Equal("toy: healthcheck: " + sentence))
	},
		Entry("no listener", "127.0.0.1:1", "request to 127.0.0.1:1: dial tcp 127.0.0.1:1: connect: connection refused"),
		Entry("no health is served", "", "--listen is empty: the process serves no health"),
		Entry("invalid address", "nowhere", "--listen: address nowhere: missing port in address"),
	)
})

var _ = It("The metrics of every service report its version, and whether it is connected to a broker", func() {
	server := natstest.Broker(GinkgoTB(), natstest.Options{})
	registry := prometheus.NewRegistry()
	host := process.SharedRuntime{
		Log: zerolog.New(GinkgoWriter), Health: process.NewHealth(), Metrics: registry,
		NATS: process.NATSOptions{URL: "nats://in.process", Dial: server.Dial()},
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- host.Run(ctx, "toy", func(ctx context.Context, rt *process.Runtime) error {
			rt.Started()
			<-ctx.Done()
			return nil
		})
	}()
	DeferCleanup(func() { cancel(); Eventually(ended).Should(Receive()) })
	value := func(series string) func() (float64, error) {
		return func() (float64, error) { return suitetest.MetricValue(registry, series) }
	}
	Eventually(value("curlmethat_toy_nats_connected")).Should(BeEquivalentTo(1))
	Expect(value(`curlmethat_build_info{component="toy"`)()).To(BeEquivalentTo(1))
	Expect(value("curlmethat_toy_nats_reconnects_total")()).To(BeZero())
	server.Stop()
	Eventually(value("curlmethat_toy_nats_connected")).Should(BeZero())
	Expect(server.Start()).To(Succeed())
	Eventually(value("curlmethat_toy_nats_connected")).Should(BeEquivalentTo(1))
	Eventually(value("curlmethat_toy_nats_reconnects_total")).Should(BeEquivalentTo(1))
	Expect(suitetest.MetricProblems(registry, process.Metrics("toy"))).To(BeEmpty())
})

func TestALineHasNoColoursWithoutATerminal(t *testing.T) {
	for _, format := range []string{"json", "console", "auto"} {
		var out bytes.Buffer
		log, err := (&process.LogOptions{Level: "info", Format: format}).New(&out, "fetcher")
		if err != nil {
			t.Fatal(err)
		}
		line := process.LogKey(log.Info(), pipeline.Key{Namespace: "shop", Name: "prices", Key: "list.json"})
		process.LogDuration(line, "next", 4*time.Second+300*time.Microsecond).Msg("failed, retrying with back-off")
		got := out.String()
		if strings.Count(got, "\n") != 1 || strings.Contains(got, "\x1b") {
			t.Errorf("%s: %q", format, got)
		}
		for _, part := range []string{"shop/prices/list.json", "4s", "failed, retrying with back-off"} {
			if !strings.Contains(got, part) {
				t.Errorf("%s: %q has no %q", format, got, part)
			}
		}
	}
}

func TestFieldsHaveOneFormat(t *testing.T) {
	var out bytes.Buffer
	log := zerolog.New(&out)
	line := process.LogKey(log.Info(), pipeline.Key{Namespace: "shop", Name: "cool.map", Key: "my.data"})
	line = process.LogObject(line, "shop", "cool.map")
	line = process.LogDuration(process.LogCause(line, v1.Cause_CAUSE_RETRY), "next", 43222692*time.Nanosecond)
	process.LogDuration(line, "wait", 68*time.Minute+38*time.Second+470*time.Millisecond).Msg("x")
	const want = `{"level":"info","key":"shop/cool.map/my.data","configmap":"shop/cool.map","cause":"retry",` +
		`"next":"43ms","wait":"1h8m38s","message":"x"}` + "\n"
	if got := out.String(); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	var none *zerolog.Event
	process.LogDuration(process.LogKey(none, pipeline.Key{}), "next", time.Second).Msg("a line that is not written")
}

// entry is a written line.
type entry struct {
	Level, Kind, Message string
	N, Omitted           int
}

func take(t *testing.T, out *gbytes.Buffer) []entry {
	t.Helper()
	var entries []entry
	for line := range strings.Lines(string(out.Contents())) {
		var e entry
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatal(err)
		}
		entries = append(entries, e)
	}
	if err := out.Clear(); err != nil {
		t.Fatal(err)
	}
	return entries
}

func TestABurstIsLimitedAndTheOmittedLinesAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := gbytes.NewBuffer()
		log := process.NewSampledLog(zerolog.New(out))
		for n := range 1000 {
			log.Line(zerolog.InfoLevel, "retry").Int("n", n).Msg("failed")
		}
		log.Line(zerolog.WarnLevel, "gave_up").Msg("another kind is not suppressed")
		log.Line(zerolog.WarnLevel, "retry").Msg("another level is not suppressed")
		time.Sleep(process.LogPeriod) //nolint:forbidigo // no time passes in the bubble of synctest
		synctest.Wait()
		entries := take(t, out)
		if len(entries) != process.LogBurst+3 {
			t.Fatalf("%d lines", len(entries))
		}
		last := entries[len(entries)-1]
		if want := (entry{
			Level: "info", Kind: "retry", Omitted: 1000 - process.LogBurst,
			Message: "omitted similar lines",
		}); last != want {
			t.Errorf("last line is %+v", last)
		}
		if n := entries[process.LogBurst-1].N; n != process.LogBurst-1 {
			t.Errorf("the first lines should be written, not line %d", n)
		}
		log.Line(zerolog.InfoLevel, "retry").Int("n", 7).Msg("after the burst")
		if entries := take(t, out); len(entries) != 1 || entries[0].N != 7 {
			t.Errorf("after the burst: %+v", entries)
		}
	})
}

func TestADisabledLevelWritesNothing(t *testing.T) {
	out := gbytes.NewBuffer()
	log := process.NewSampledLog(zerolog.New(out).Level(zerolog.InfoLevel))
	log.Line(zerolog.DebugLevel, "parked").Msg("below the level")
	if entries := take(t, out); len(entries) != 0 {
		t.Errorf("wrote %+v", entries)
	}
}

func TestLogHidesAddresses(t *testing.T) {
	address := func(s string) *net.TCPAddr {
		a, err := net.ResolveTCPAddr("tcp", s)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	broken := &net.OpError{
		Op: "read", Net: "tcp", Source: address("10.1.2.3:53418"), Addr: address("10.96.0.1:443"),
		Err: syscall.ECONNRESET,
	}
	six := &net.OpError{Op: "dial", Net: "tcp", Addr: address("[fd00::1]:443"), Err: syscall.ECONNREFUSED}
	for _, c := range []struct {
		name, want string
		err        error
	}{
		{"connection", "read tcp (address)->(address): connection reset by peer", broken},
		{"IPv6", "dial tcp (address): connection refused", six},
		{
			"in a URL", `Get "https://(address)/api": dial tcp (address): connection refused`,
			&url.Error{Op: "Get", URL: "https://[fd00::1]:443/api", Err: six},
		},
		{
			"resolver", "lookup api.example on (address): no such host",
			&net.DNSError{Err: "no such host", Name: "api.example", Server: "10.96.0.10:53"},
		},
		{
			"certificate", "certificate is valid for (address), not (address)",
			errors.New("certificate is valid for 10.0.0.1, not 10.0.0.2"),
		},
		{"no address", "version 1.36.3 of [1 2] at 18:35:42", errors.New("version 1.36.3 of [1 2] at 18:35:42")},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, format := range []string{"json", "console"} {
				var out bytes.Buffer
				log, err := (&process.LogOptions{Level: "info", Format: format}).New(&out, "watcher")
				if err != nil {
					t.Fatal(err)
				}
				log.Warn().Err(c.err).Str("servers", "nats://127.0.0.1:4222,nats://127.0.0.1:4223").Msg("failed")
				logged := strings.ReplaceAll(out.String(), `\"`, `"`)
				if !strings.Contains(logged, c.want) {
					t.Errorf("%s: %q does not contain %q", format, logged, c.want)
				}
				if !strings.Contains(logged, "nats://127.0.0.1:4222,nats://127.0.0.1:4223") {
					t.Errorf("%s hides the configured servers: %q", format, logged)
				}
			}
		})
	}
}
