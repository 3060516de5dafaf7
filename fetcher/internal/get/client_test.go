package get_test

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/sync/errgroup"

	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	"github.com/kv8s/curl-me-that/fetcher/internal/egress"
	"github.com/kv8s/curl-me-that/fetcher/internal/get"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
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

// authority issues the certificates of a spec.
type authority struct {
	key         *ecdsa.PrivateKey
	certificate *x509.Certificate
}

func newAuthority() *authority {
	GinkgoHelper()
	key := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: "authority of a spec"},
		NotBefore:             time.Now().Add(-time.Hour),
		NotAfter:              time.Now().Add(time.Hour),
		IsCA:                  true,
		KeyUsage:              x509.KeyUsageCertSign,
		BasicConstraintsValid: true,
	}
	der := must(x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key))
	certificate := must(x509.ParseCertificate(der))
	return &authority{key: key, certificate: certificate}
}

func (a *authority) pem() string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.certificate.Raw}))
}

func (a *authority) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.certificate)
	return pool
}

// issue makes a certificate for a name (empty means none) that is valid until a time.
func (a *authority) issue(name string, until time.Time) tls.Certificate {
	GinkgoHelper()
	key := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2),
		Subject:      pkix.Name{CommonName: secret},
		NotBefore:    time.Now().Add(-2 * time.Hour),
		NotAfter:     until,
	}
	if name != "" {
		template.DNSNames = []string{name}
	}
	der := must(x509.CreateCertificate(rand.Reader, template, a.certificate, &key.PublicKey, a.key))
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// secured makes a TLS handshake before it passes a connection on.
func secured(cfg *tls.Config, handle func(context.Context, net.Conn)) func(context.Context, net.Conn) {
	return func(ctx context.Context, conn net.Conn) {
		inner := tls.Server(conn, cfg)
		defer func() { _ = inner.Close() }()
		if inner.HandshakeContext(ctx) == nil {
			handle(ctx, inner)
		}
	}
}

func httpsURL(port int) string { return "https://" + hostPort(host, port) + "/" }

var _ = Describe("TLS", func() {
	var (
		ca     *authority
		cfg    get.Config
		server *tls.Config
		// respond is what the server does after the handshake.
		respond func(context.Context, net.Conn)
	)
	later := func() time.Time { return time.Now().Add(time.Hour) }

	BeforeEach(func() {
		ca = newAuthority()
		cfg = shortLimits()
		cfg.CABundle = writeFile("ca.pem", ca.pem())
		respond = say(ok + length(5) + "hello")
		server = &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{ca.issue(host, later())}}
	})

	do := func(ctx context.Context, handle func(context.Context, net.Conn)) (get.Response, *get.Error) {
		GinkgoHelper()
		client := newClient(cfg, newGate(egress.Config{}), get.Deps{})
		response, err := client.Do(ctx, get.Request{URL: httpsURL(serve(handle))})
		if err == nil {
			return response, nil
		}
		var failure *get.Error
		Expect(errors.As(err, &failure)).To(BeTrue(), "%v", err)
		Expect(failure.Error()).NotTo(ContainSubstring(secret))
		return response, failure
	}

	It("never offers HTTP/2, and uses HTTP/1.1 with a server that has both", func(ctx SpecContext) {
		var offered atomic.Value
		server.NextProtos = []string{"h2", "http/1.1"}
		server.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			offered.Store(hello.SupportedProtos)
			return nil, nil
		}
		response, failure := do(ctx, secured(server, say(ok+length(5)+"hello")))
		Expect(failure).NotTo(HaveOccurred())
		Expect(string(response.Body)).To(Equal("hello"))
		Expect(offered.Load()).NotTo(ContainElement("h2"))
	})

	const (
		certificate = "TLS handshake with data.example.com failed: the server asked for a client certificate, " +
			"and none is configured for this URL and namespace"
		http2 = "data.example.com does not speak HTTP/1.1, perhaps only HTTP/2; use the URL of a server that does"
	)
	const trust = "the TLS certificate of data.example.com cannot be trusted: "
	DescribeTable("fails with a sentence of our own:",
		func(ctx SpecContext, spoil func(), handle func(context.Context, net.Conn), text string) {
			if spoil != nil {
				spoil()
			}
			if handle == nil {
				handle = secured(server, respond)
			}
			_, failure := do(ctx, handle)
			Expect(failure).To(HaveOccurred())
			Expect(failure.Class).To(Equal(tlsFailed))
			Expect(failure.Error()).To(Equal(text))
		},
		Entry("expired", func() { server.Certificates[0] = ca.issue(host, time.Now().Add(-time.Hour)) }, nil,
			trust+"it has expired or is not yet valid"),
		Entry("wrong host", func() { server.Certificates[0] = ca.issue("other.example.com", later()) }, nil,
			trust+"it was issued for another host name"),
		Entry("self-signed", func() { cfg.CABundle = "" }, nil,
			trust+"it is signed by an unknown authority, or the server does not send its intermediate certificate"),
		Entry("unknown authority, with its certificate", func() {
			cfg.CABundle = ""
			server.Certificates[0].Certificate = append(server.Certificates[0].Certificate, ca.certificate.Raw)
		}, nil, trust+"it is signed by an unknown authority"),
		Entry("common name only", func() { server.Certificates[0] = ca.issue("", later()) }, nil,
			trust+"it has only a common name; have one issued with the host as a subject alternative name"),
		Entry("1.0 only", func() { server.MinVersion, server.MaxVersion = tls.VersionTLS10, tls.VersionTLS10 }, nil,
			"TLS handshake with data.example.com failed: the server rejected it or does not speak TLS"),
		Entry("1.1 only", func() { server.MinVersion, server.MaxVersion = tls.VersionTLS11, tls.VersionTLS11 }, nil,
			"TLS handshake with data.example.com failed: the server rejected it or does not speak TLS"),
		Entry("client certificate required by TLS 1.2", func() {
			server.ClientAuth, server.MaxVersion = tls.RequireAnyClientCert, tls.VersionTLS12
		}, nil, certificate),
		Entry("client certificate required by TLS 1.3", func() {
			server.ClientAuth = tls.RequireAnyClientCert
		}, nil, certificate),
		Entry("client certificate required, without an alert", func() {
			server.ClientAuth, respond = tls.RequestClientCert, say("")
		}, nil, certificate),
		Entry("HTTP/2 only, by an alert", func() { server.NextProtos = []string{"acme-tls/1"} }, nil, http2),
		Entry("plain HTTP", nil, say("HTTP/1.1 400 "+secret+"\r\n\r\n"),
			"data.example.com responded by plain HTTP to an https:// URL; write http:// if that is meant "+
				"(https:// is assumed where no scheme is written)"),
		Entry("closed during the handshake", nil, func(_ context.Context, conn net.Conn) {
			_, _ = io.ReadFull(conn, make([]byte, 5))
		}, "TLS handshake with data.example.com failed: the server rejected it or does not speak TLS"),
	)

	DescribeTable("says that the server asked for a client certificate before it refused the request", func(
		ctx SpecContext, status string,
	) {
		server.ClientAuth = tls.RequestClientCert
		_, failure := do(ctx, secured(server, say("HTTP/1.1 "+status+" No\r\n"+length(0))))
		Expect(failure).To(MatchError("data.example.com responded with " + status + "; the server asked for a client " +
			"certificate, and none is configured for this URL and namespace"))
	},
		Entry(nil, "400"),
		Entry(nil, "403"),
	)

	It("says that the server does not accept the client certificate", func(ctx SpecContext) {
		server.ClientAuth, server.ClientCAs = tls.RequireAndVerifyClientCert, newAuthority().pool()
		port := serve(secured(server, respond))
		dir := filepath.Dir(cfg.CABundle)
		own, key := pemOf(ca.issue("team-a", later()))
		replace(filepath.Join(dir, "crt"), own)
		replace(filepath.Join(dir, "key"), key)
		cfg.HeaderFile = filepath.Join(dir, "headers.yaml")
		replace(cfg.HeaderFile, fmt.Sprintf("- {host: %s, namespaces: [\"*\"], ports: [%d], "+
			"clientCertificate: {certFile: crt, keyFile: key}}", host, port))
		client := newClient(cfg, newGate(egress.Config{}), get.Deps{})
		for _, authorities := range []*x509.CertPool{server.ClientCAs, nil} { // without names, it is sent
			server.ClientCAs = authorities
			Expect(errorOf(client.Do(ctx, get.Request{URL: httpsURL(port), Namespace: "team-a"}))).To(MatchError(
				"TLS handshake with data.example.com failed: the server does not accept the client certificate " +
					"for this URL and namespace"))
		}
	})

	It("aborts a silent handshake after the TLS timeout", func(ctx SpecContext) {
		start := time.Now()
		_, failure := do(ctx, hold)
		Expect(failure.Class).To(Equal(timedOut))
		Expect(time.Since(start)).To(BeNumerically("<", cfg.Timeout))
	})

	It("follows a redirect from http to https, but never back", func(ctx SpecContext) {
		secure := serve(secured(server, say(ok+length(5)+"hello")))
		plain := serve(redirectTo(httpsURL(secure)))
		client := newClient(cfg, newGate(egress.Config{}), get.Deps{})
		response := must(client.Do(ctx, get.Request{URL: urlOf(plain, "/")}))
		Expect(string(response.Body)).To(Equal("hello"))

		_, failure := do(ctx, secured(server, redirectTo(urlOf(plain, "/"))))
		Expect(failure.Class).To(Equal(tooManyRedirects))
		Expect(failure.Error()).To(Equal("data.example.com redirected from https to http, which is not followed; " +
			"use a URL that stays with https"))
	})

	It("loads a new CA bundle without a restart", func(ctx SpecContext) {
		other := newAuthority()
		cfg.CABundle = writeFile("ca.pem", other.pem())
		client, reload := newReloading(cfg, get.Deps{})
		request := get.Request{URL: httpsURL(serve(secured(server, say(ok+length(5)+"hello"))))}
		_, err := client.Do(ctx, request)
		Expect(err).To(HaveOccurred())

		replace(cfg.CABundle, "no certificate")
		Expect(reload()).To(MatchError("read " + cfg.CABundle + ": no PEM certificate in it"))
		replace(cfg.CABundle, ca.pem())
		Expect(reload()).To(Succeed())

		Expect(client.Do(ctx, request)).Error().NotTo(HaveOccurred())
	})
})

var _ = Describe("an egress proxy", func() {
	var (
		seen   *recorder
		cfg    get.Config
		policy egress.Config
	)

	BeforeEach(func() {
		seen, policy = &recorder{}, egress.Config{}
		port := serveHTTP(func(w http.ResponseWriter, r *http.Request) {
			seen.note(r)
			if r.Method == http.MethodConnect {
				w.WriteHeader(http.StatusForbidden)
				return
			}
			_, _ = io.WriteString(w, "by proxy")
		})
		cfg = shortLimits()
		cfg.Proxy = fmt.Sprintf("http://me:%s@127.0.0.1:%d", secret, port)
	})

	newProxied := func(names map[string][]string) *get.Client {
		GinkgoHelper()
		dns := startDNS()
		dns.SetOther("93.184.216.34")
		for name, addrs := range names {
			dns.Set(name, addrs...)
		}
		// The policy permits public addresses only. The proxy is the operator's.
		gate := must(egress.New(policy, egress.Deps{Resolver: dns.Resolver()}))
		return newClient(cfg, gate, get.Deps{})
	}

	It("receives the requests that the policy permits", func(ctx SpecContext) {
		response := must(newProxied(nil).Do(ctx, get.Request{URL: "http://data.example.com/x%2F{y}?{q}"}))
		Expect(string(response.Body)).To(Equal("by proxy"))
		Expect(seen.requests()).To(HaveLen(1))
		Expect(seen.requests()[0].RequestURI).To(Equal("http://data.example.com/x%2F{y}?{q}"))
		Expect(seen.requests()[0].Header).To(HaveKey("Proxy-Authorization"))
	})

	DescribeTable("receives nothing that the policy denies:",
		func(ctx SpecContext, raw string, addrs ...string) {
			client := newProxied(map[string][]string{"bad.example.com": addrs})
			Expect(errorOf(client.Do(ctx, get.Request{URL: raw})).Class).To(Equal(addressDenied))
			Expect(seen.requests()).To(BeEmpty())
		},
		Entry("a private name", "http://bad.example.com/", "10.0.0.1"),
		Entry("a name with one private address among public ones", "http://bad.example.com/", "93.184.216.34", "10.0.0.1"),
		Entry("a private name over TLS", "https://bad.example.com/", "10.0.0.1"),
		Entry("an address", "http://127.0.0.1/"),
		Entry("a reserved name", "http://kubernetes.default.svc/"),
		Entry("a port", "http://data.example.com:22/"),
	)

	DescribeTable("is distinguished from the host when it fails:",
		func(ctx SpecContext, spoil func(), raw string) {
			spoil()
			err := errorOf(newProxied(nil).Do(ctx, get.Request{URL: raw}))
			Expect(err.Class).To(Equal(connectFailed))
			Expect(err).To(MatchError("could not connect to data.example.com: the egress proxy refused the connection"))
		},
		Entry("it refuses a tunnel", func() {}, "https://data.example.com/"),
		Entry("it is not listening", func() { cfg.Proxy = "http://127.0.0.1:1" }, "http://data.example.com/"),
	)

	It("is not used for direct hosts", func(ctx SpecContext) {
		policy = egress.Config{AllowCIDRs: []string{"127.0.0.1"}, DirectHosts: []string{"*.corp.example"}}
		client := newProxied(map[string][]string{"data.corp.example": {"127.0.0.1"}})
		direct := serveHTTP(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "direct") })
		response := must(client.Do(ctx, get.Request{URL: "http://" + hostPort("data.corp.example", direct) + "/"}))
		Expect(string(response.Body)).To(Equal("direct"))
		Expect(seen.requests()).To(BeEmpty())
		response = must(client.Do(ctx, get.Request{URL: "http://data.example.com/"}))
		Expect(string(response.Body)).To(Equal("by proxy"))
	})

	Context("that resolves names", func() {
		BeforeEach(func() {
			policy = egress.Config{
				ProxyResolves: true, DirectHosts: []string{"*.corp.example"}, DenyHosts: []string{"bad.example.com"},
				AllowCIDRs: []string{"172.16.0.0/12"}, // allows any name and port, but only at the dial
			}
		})

		It("gets names that are not in DNS", func(ctx SpecContext) {
			client := newProxied(map[string][]string{"data.example.com": {}, "data.corp.example": {}})
			response := must(client.Do(ctx, get.Request{URL: "http://data.example.com/"}))
			Expect(string(response.Body)).To(Equal("by proxy"))
			Expect(errorOf(client.Do(ctx, get.Request{URL: "http://data.corp.example/"})).Class).
				To(Equal(dnsFailed), "direct hosts are looked up here")
		})

		DescribeTable("gets nothing that the policy denies by its text:", func(ctx SpecContext, raw string) {
			Expect(errorOf(newProxied(nil).Do(ctx, get.Request{URL: raw})).Class).To(Equal(addressDenied))
			Expect(seen.requests()).To(BeEmpty())
		},
			Entry("an address", "http://10.0.0.1/"),
			Entry("a reserved name", "http://kubernetes.default.svc/"),
			Entry("a denied name", "https://bad.example.com/"),
			Entry("a port", "http://data.example.com:22/"),
		)
	})

	It("never gets a client certificate, not even over TLS", func(ctx SpecContext) {
		ca := newAuthority()
		port := secureServer(ca, "localhost", ca.pool(), func(w http.ResponseWriter, r *http.Request) {
			seen.note(r)
			w.WriteHeader(http.StatusForbidden)
		})
		certificate, key := pemOf(ca.issue("team-a", time.Now().Add(time.Hour)))
		cfg.HeaderFile = writeFile("headers.yaml",
			"- {host: data.example.com, namespaces: [team-a], clientCertificate: {certFile: crt, keyFile: key}}\n")
		replace(filepath.Join(filepath.Dir(cfg.HeaderFile), "crt"), certificate)
		replace(filepath.Join(filepath.Dir(cfg.HeaderFile), "key"), key)
		cfg.CABundle = writeFile("ca.pem", ca.pem())
		cfg.Proxy = "https://" + hostPort("localhost", port)
		request := get.Request{URL: "https://data.example.com/", Namespace: "team-a"}
		Expect(errorOf(newProxied(nil).Do(ctx, request)).Detail).To(Equal(v1.FailureDetail_FAILURE_DETAIL_PROXY))
		Expect(seen.requests()).To(HaveLen(1))
		Expect(seen.requests()[0].TLS.PeerCertificates).To(BeEmpty())
	})

	It("is never taken from the environment", func(ctx SpecContext) {
		GinkgoT().Setenv("HTTP_PROXY", cfg.Proxy)
		client := newClient(shortLimits(), newGate(egress.Config{}), get.Deps{})
		Expect(client.Do(ctx, get.Request{URL: urlOf(serve(say(ok+length(0))), "/")})).Error().NotTo(HaveOccurred())
		Expect(seen.requests()).To(BeEmpty())
	})
})
