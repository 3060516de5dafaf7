package get_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/sync/errgroup"

	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	"github.com/kv8s/curl-me-that/fetcher/internal/egress"
	"github.com/kv8s/curl-me-that/fetcher/internal/get"
)

func TestGet(t *testing.T) { suitetest.Run(t, "get") }

var _ = BeforeSuite(suitetest.ExpectNoLeaks)

// host is the name of the servers in the specs.
const host = "data.example.com"

// shortLimits make hostile servers fail sooner.
func shortLimits() get.Config {
	cfg := get.Defaults()
	cfg.Version = "v1.2.3"
	cfg.MaxBody = 100_000
	cfg.Timeout = 3 * time.Second
	cfg.TLSTimeout = 1500 * time.Millisecond
	cfg.HeaderTimeout = 1500 * time.Millisecond
	return cfg
}

func startDNS() *suitetest.DNS {
	names := suitetest.NewDNS()
	names.SetOther("127.0.0.1")
	return names
}

// newGate returns a gate that permits loopback only. Every name resolves to it.
func newGate(cfg egress.Config) *egress.Gate {
	GinkgoHelper()
	cfg.AllowCIDRs = append(cfg.AllowCIDRs, "127.0.0.1/32")
	return must(egress.New(cfg, egress.Deps{Resolver: startDNS().Resolver(), DialTimeout: 10 * time.Second}))
}

// newClient returns a client that stops with the spec.
func newClient(cfg get.Config, gate *egress.Gate, deps get.Deps) *get.Client {
	GinkgoHelper()
	deps.Gate = gate
	client := must(get.New(cfg, deps))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- client.Run(ctx) }()
	DeferCleanup(func() {
		cancel()
		Eventually(done).Should(Receive(BeNil()))
	})
	return client
}

// newReloading returns a client, and a function that makes it look at its files, one of which has
// changed. The function returns why the new content is not in force.
func newReloading(cfg get.Config, deps get.Deps) (client *get.Client, reload func() error) {
	GinkgoHelper()
	ticks, reports := make(chan time.Time), make(chan error, 10)
	deps.Ticks, deps.OnReload = ticks, func(_ string, err error) { reports <- err }
	return newClient(cfg, newGate(egress.Config{}), deps), func() (err error) {
		GinkgoHelper()
		ticks <- time.Now()
		Eventually(reports).Should(Receive(&err))
		return err
	}
}

// serve passes every connection to handle, which may do anything until ctx is done at the end of
// the spec.
func serve(handle func(context.Context, net.Conn)) (port int) {
	GinkgoHelper()
	listener := must(net.Listen("tcp", "127.0.0.1:0"))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
				defer stop()
				defer func() { _ = conn.Close() }()
				handle(ctx, conn)
			}()
		}
	}()
	DeferCleanup(func() {
		cancel()
		_ = listener.Close()
		<-done
	})
	return listener.Addr().(*net.TCPAddr).Port
}

// serveHTTP is for servers that follow HTTP.
func serveHTTP(handler http.HandlerFunc) (port int) {
	GinkgoHelper()
	server := httptest.NewServer(handler)
	DeferCleanup(server.Close)
	return server.Listener.Addr().(*net.TCPAddr).Port
}

func urlOf(port int, path string) string {
	return "http://" + hostPort(host, port) + path
}

func hostPort(host string, port int) string { return net.JoinHostPort(host, strconv.Itoa(port)) }

// readRequest waits until the client has sent its headers.
func readRequest(conn net.Conn) {
	_, _ = http.ReadRequest(bufio.NewReaderSize(conn, 1<<10))
}

// say responds to each connection with text and closes it.
func say(text string) func(context.Context, net.Conn) {
	return func(_ context.Context, conn net.Conn) {
		readRequest(conn)
		_, _ = io.WriteString(conn, text)
	}
}

// sayAndHold responds and keeps the connection open.
func sayAndHold(text string) func(context.Context, net.Conn) {
	return func(ctx context.Context, conn net.Conn) {
		readRequest(conn)
		_, _ = io.WriteString(conn, text)
		<-ctx.Done()
	}
}

// repeat responds and repeats the same text without end.
func repeat(text, words string) func(context.Context, net.Conn) {
	many := strings.Repeat(words, 1+(8<<10)/len(words))
	return func(_ context.Context, conn net.Conn) {
		readRequest(conn)
		_, err := io.WriteString(conn, text)
		for err == nil {
			_, err = io.WriteString(conn, many)
		}
	}
}

// redirectOr redirects to the URL in the query, if there is one, and responds otherwise.
func redirectOr(body string, status int) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if to := r.URL.Query().Get("to"); to != "" {
			http.Redirect(w, r, to, http.StatusFound)
			return
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

func writeFile(name, content string) string {
	GinkgoHelper()
	path := filepath.Join(GinkgoT().TempDir(), name)
	Expect(os.WriteFile(path, []byte(content), 0o600)).To(Succeed())
	return path
}

// replace changes a file atomically, as a mounted ConfigMap does.
func replace(path, content string) {
	GinkgoHelper()
	Expect(os.WriteFile(path+".new", []byte(content), 0o600)).To(Succeed())
	Expect(os.Rename(path+".new", path)).To(Succeed())
}

func must[T any](value T, err error) T {
	GinkgoHelper()
	Expect(err).NotTo(HaveOccurred())
	return value
}

// phases counts the observed phases.
type phases struct {
	mu   sync.Mutex
	seen map[get.Phase]int
}

func (p *phases) ObservePhase(_ context.Context, phase get.Phase, took time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if took >= 0 {
		p.seen[phase]++
	}
}

func (p *phases) counts() map[get.Phase]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.seen)
}

var _ = Describe("a client", func() {
	It("observes the duration of each phase", func(ctx SpecContext) {
		heard := &phases{seen: map[get.Phase]int{}}
		ca := newAuthority()
		cfg := shortLimits()
		cfg.CABundle = writeFile("ca.pem", ca.pem())
		client := newClient(cfg, newGate(egress.Config{}), get.Deps{Observe: heard.ObservePhase})
		port := secureServer(ca, host, nil, redirectOr("hello", http.StatusOK))

		Expect(client.Do(ctx, get.Request{URL: httpsURL(port)})).Error().NotTo(HaveOccurred())
		Expect(heard.counts()).To(Equal(map[get.Phase]int{
			get.Phase("dns"): 1, get.Phase("connect"): 1, get.Phase("tls"): 1, get.Phase("first_byte"): 1,
			get.Phase("transfer"): 1, get.Phase("total"): 1,
		}))

		_, err := client.Do(ctx, get.Request{URL: "http://10.0.0.1/"})
		Expect(err).To(HaveOccurred())
		Expect(client.Do(ctx, get.Request{URL: httpsURL(port)})).Error().NotTo(HaveOccurred())
		Expect(heard.counts()).To(Equal(map[get.Phase]int{
			get.Phase("dns"): 2, get.Phase("connect"): 2, get.Phase("tls"): 2, get.Phase("first_byte"): 2,
			get.Phase("transfer"): 2, get.Phase("total"): 3,
		}))
	})

	DescribeTable("rejects an invalid configuration",
		func(spoil func(*get.Config), text string) {
			cfg := get.Defaults()
			spoil(&cfg)
			_, err := get.New(cfg, get.Deps{Gate: newGate(egress.Config{})})
			Expect(err).To(MatchError("set up GET: " + text))
		},
		Entry(nil, func(c *get.Config) { c.Proxy = "http://me:" + secret + "@:x" },
			"proxy must be a URL such as http://proxy.example.com:3128"),
		Entry(nil, func(c *get.Config) { c.Proxy = "socks5://proxy" },
			"proxy must be a URL such as http://proxy.example.com:3128"),
		Entry(nil, func(c *get.Config) { c.CABundle = "/missing" }, "open /missing: no such file or directory"),
		Entry(nil, func(c *get.Config) { c.HeaderFile = "/missing" }, "open /missing: no such file or directory"),
	)
})

// recorder records the requests to the servers of a spec.
type recorder struct {
	mu   sync.Mutex
	seen []*http.Request
}

func (r *recorder) note(req *http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen = append(r.seen, req)
}

func (r *recorder) requests() []*http.Request {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.seen)
}

// authorizations returns the Authorization of each request.
func (r *recorder) authorizations() (all []string) {
	for _, req := range r.requests() {
		all = append(all, req.Header.Get("Authorization"))
	}
	return all
}

// lastAuthorization returns the Authorization header of the last request.
func (r *recorder) lastAuthorization() string {
	all := r.authorizations()
	return all[len(all)-1]
}

// errorOf returns the error of a failed GET.
func errorOf(_ get.Response, err error) *get.Error {
	GinkgoHelper()
	var failure *get.Error
	Expect(errors.As(err, &failure)).To(BeTrue(), "%v", err)
	return failure
}

// together makes the same GET many times at once.
func together(ctx context.Context, client *get.Client, times int, r get.Request) {
	GinkgoHelper()
	var group errgroup.Group
	for range times {
		group.Go(func() error { _, err := client.Do(ctx, r); return err })
	}
	Expect(group.Wait()).To(Succeed())
}

var _ = Describe("a request", func() {
	var (
		seen   *recorder
		client *get.Client
	)

	BeforeEach(func() {
		seen = &recorder{}
		client = newClient(shortLimits(), newGate(egress.Config{}), get.Deps{})
	})

	It("identifies the program, and nothing else", func(ctx SpecContext) {
		port := serveHTTP(func(w http.ResponseWriter, r *http.Request) {
			seen.note(r)
			http.SetCookie(w, &http.Cookie{Name: "a", Value: "b"})
		})
		for range 2 {
			Expect(client.Do(ctx, get.Request{URL: urlOf(port, "/a%20b/%2e?q=%0d%0a#fragment")})).Error().NotTo(HaveOccurred())
		}
		for _, r := range seen.requests() {
			Expect(r.Method).To(Equal(http.MethodGet))
			Expect(r.Proto).To(Equal("HTTP/1.1"))
			Expect(r.RequestURI).To(Equal("/a%20b/%2e?q=%0d%0a"))
			Expect(r.Header).To(Equal(http.Header{
				"Accept":          {"*/*"},
				"Accept-Encoding": {"identity"},
				"User-Agent":      {"curl-me-that/v1.2.3 (+https://github.com/kv8s/curl-me-that)"},
			}))
		}
	})

	DescribeTable("fails with a text without addresses and odd hosts",
		func(ctx SpecContext, raw, failureHost, text string) {
			err := errorOf(client.Do(ctx, get.Request{URL: raw}))
			Expect(err.Host).To(Equal(failureHost))
			Expect(err.Class).To(Equal(addressDenied))
			Expect(err).To(MatchError(egress.ErrDenied))
			Expect(err).To(MatchError(text))
		},
		Entry(nil, "http://user:"+secret+"@data.example.com/", host,
			"fetching from data.example.com is not allowed: the URL or its host name is not valid"),
		Entry(nil, "http://10.0.0.1/", "10.0.0.1",
			"fetching from (address) is not allowed: its address is not public"),
		Entry(nil, "http://data_example.com/", "data_example.com",
			"fetching from data_example.com is not allowed: the URL or its host name is not valid"),
		Entry(nil, "http://data%C3%A9.com/", "",
			"fetching from the host of the URL is not allowed: the URL or its host name is not valid"),
		Entry(nil, "://", "",
			"fetching from the host of the URL is not allowed: the URL or its host name is not valid"),
	)

	It("fails with DNSFailed if a name has no address", func(ctx SpecContext) {
		names := startDNS()
		names.Set(host)
		gate := must(egress.New(egress.Config{}, egress.Deps{Resolver: names.Resolver()}))
		client = newClient(shortLimits(), gate, get.Deps{})

		err := errorOf(client.Do(ctx, get.Request{URL: "http://data.example.com/"}))
		Expect(err.Class).To(Equal(dnsFailed))
		Expect(err).To(MatchError("data.example.com was not found in DNS"))
	})

	It("fails with ConnectFailed if a connection is refused", func(ctx SpecContext) {
		listener := must(net.Listen("tcp", "127.0.0.1:0"))
		port := listener.Addr().(*net.TCPAddr).Port
		Expect(listener.Close()).To(Succeed())

		err := errorOf(client.Do(ctx, get.Request{URL: urlOf(port, "/")}))
		Expect(err.Class).To(Equal(connectFailed))
		Expect(err).To(MatchError("could not connect to data.example.com: connection refused"))
	})

	It("fails without a class if it is cancelled", func(ctx SpecContext) {
		arrived := make(chan struct{})
		port := serve(func(ctx context.Context, conn net.Conn) {
			readRequest(conn)
			close(arrived)
			<-ctx.Done()
		})
		stopped, cancel := context.WithCancel(ctx)
		go func() {
			<-arrived
			cancel()
		}()

		_, err := client.Do(stopped, get.Request{URL: urlOf(port, "/")})

		Expect(err).To(MatchError(context.Canceled))
		var failure *get.Error
		Expect(errors.As(err, &failure)).To(BeFalse())
	})
})
