package process_test

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gexec"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	"github.com/kv8s/curl-me-that/proto/process"
)

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
	Expect(health.Unready()).To(HaveExactElements("watcher/cache (the API server does not respond)"))

	cache.Ready()
	Expect(health.Unready()).To(BeEmpty())
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

var _ = Describe("the health check of a service", func() {
	exits := func(code int, env []string, args ...string) string {
		GinkgoHelper()
		session := run(env, append([]string{"healthcheck"}, args...)...)
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
