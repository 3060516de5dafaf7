package get_test

import (
	"bufio"
	"context"
	"errors"
	"io"
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

// cfg is the configuration of the client of the current spec, and seen has the requests to its servers.
var (
	cfg  get.Config
	seen *recorder
)

var _ = BeforeEach(func() { cfg, seen = shortLimits(), new(recorder) })

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
	return suitetest.Must(egress.New(cfg, egress.Deps{Resolver: startDNS().Resolver(), DialTimeout: 10 * time.Second}))
}

// newClient returns a client that reaches loopback only.
func newClient() *get.Client {
	GinkgoHelper()
	return newClientOf(newGate(egress.Config{}), get.Deps{})
}

// newClientOf returns a client that stops with the spec.
func newClientOf(gate *egress.Gate, deps get.Deps) *get.Client {
	GinkgoHelper()
	deps.Gate = gate
	client := suitetest.Must(get.New(cfg, deps))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); client.Run(ctx) }()
	DeferCleanup(func() {
		cancel()
		Eventually(done).Should(BeClosed())
	})
	return client
}

// newReloading returns a client, and a function that makes it look at its files, one of which has
// changed. The function returns why the new content is not in force.
func newReloading(deps get.Deps) (client *get.Client, reload func() error) {
	GinkgoHelper()
	ticks, reports := make(chan time.Time), make(chan error, 10)
	deps.Ticks, deps.OnReload = ticks, func(_ string, err error) { reports <- err }
	return newClientOf(newGate(egress.Config{}), deps), func() (err error) {
		GinkgoHelper()
		ticks <- time.Now()
		Eventually(reports).Should(Receive(&err))
		return err
	}
}

// serve passes every connection to handle, which may do anything until ctx is done at the end of the spec.
func serve(handle func(context.Context, net.Conn)) (port int) {
	GinkgoHelper()
	listener := suitetest.Must(net.Listen("tcp", "127.0.0.1:0"))
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
