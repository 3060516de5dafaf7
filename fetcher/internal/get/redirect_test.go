package get_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/fetcher/internal/egress"
	"github.com/kv8s/curl-me-that/fetcher/internal/get"
)

var _ = Describe("a redirect", func() {
	var client *get.Client

	BeforeEach(func() {
		client = newClient(shortLimits(), newGate(egress.Config{}), get.Deps{})
	})

	// countdown redirects from /n to /n-1 and responds with hello at /0.
	countdown := func(status int, seen *recorder) (port int) {
		return serveHTTP(func(w http.ResponseWriter, r *http.Request) {
			seen.note(r)
			n, _ := strconv.Atoi(r.URL.Path[1:])
			if n == 0 {
				_, _ = io.WriteString(w, "hello")
				return
			}
			w.Header().Set("Location", fmt.Sprint(n-1))
			w.WriteHeader(status)
			_, _ = io.WriteString(w, secret)
		})
	}

	DescribeTable("is followed",
		func(ctx SpecContext, status int) {
			seen := &recorder{}
			port := countdown(status, seen)
			response := must(client.Do(ctx, get.Request{URL: urlOf(port, "/5?q")}))
			Expect(string(response.Body)).To(Equal("hello"))
			for _, r := range seen.requests() {
				Expect(r.Method).To(Equal(http.MethodGet))
				Expect(r.Header).NotTo(HaveKey("Referer"))
			}
		},
		Entry(nil, 301), Entry(nil, 302), Entry(nil, 303), Entry(nil, 307), Entry(nil, 308),
	)

	It("is followed up to five times", func(ctx SpecContext) {
		seen := &recorder{}
		err := failed(client.Do(ctx, get.Request{URL: urlOf(countdown(302, seen), "/6")}))
		Expect(err.Class).To(Equal(tooManyRedirects))
		Expect(err).To(MatchError("data.example.com redirected more than 5 times"))
		Expect(seen.requests()).To(HaveLen(6))
	})

	It("is followed to a Location that is not quite ASCII", func(ctx SpecContext) {
		port := serveHTTP(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/ä ö" {
				_, _ = io.WriteString(w, "hello")
				return
			}
			w.Header().Set("Location", "/ä ö#x")
			w.WriteHeader(http.StatusFound)
		})
		response := must(client.Do(ctx, get.Request{URL: urlOf(port, "/")}))
		Expect(string(response.Body)).To(Equal("hello"))
	})

	It("to a denied address sends nothing and does not name the address", func(ctx SpecContext) {
		visits := make(chan string, 16)
		trap := must(net.Listen("tcp", "127.0.0.2:0"))
		note := func(conn net.Conn, state http.ConnState) {
			if state == http.StateNew { // in the order of the connections
				visits <- conn.RemoteAddr().String()
			}
		}
		server := &httptest.Server{Listener: trap, Config: &http.Server{ConnState: note}}
		server.Start()
		DeferCleanup(server.Close)
		trapPort := trap.Addr().(*net.TCPAddr).Port
		gate := newGate(egress.Config{AllowPorts: []int{trapPort}})
		client = newClient(shortLimits(), gate, get.Deps{})

		for _, location := range []string{
			fmt.Sprintf("http://127.0.0.2:%d/", trapPort),
			fmt.Sprintf("//127.0.0.2:%d/", trapPort),
			fmt.Sprintf("http://[::ffff:127.0.0.2]:%d/", trapPort),
			fmt.Sprintf("http://%s@127.0.0.2:%d/", host, trapPort),
		} {
			err := failed(client.Do(ctx, get.Request{URL: urlOf(serve(redirectTo(location)), "/")}))
			Expect(err.Class).To(Equal(addressDenied))
			Expect(err.Host).To(Equal(host))
			Expect(err.Redirects).To(Equal(1))
			Expect(err.Detail).NotTo(BeZero())
			Expect(err).To(MatchError(HavePrefix("redirect 1 of data.example.com leads to a URL that is not allowed: ")))
			Expect(err.Error()).NotTo(ContainSubstring("127"))
		}

		conn := must(net.Dial("tcp", trap.Addr().String()))
		defer func() { _ = conn.Close() }()
		Eventually(visits).Should(Receive(Equal(conn.LocalAddr().String())), "the first visitor is the spec itself")
	})
})
