package get_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/sync/errgroup"

	"github.com/kv8s/curl-me-that/fetcher/internal/egress"
	"github.com/kv8s/curl-me-that/fetcher/internal/get"
)

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

// failed returns the error of a failed GET.
func failed(_ get.Response, err error) *get.Error {
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

	It("names the host in its usual form", func(ctx SpecContext) {
		port := serveHTTP(func(_ http.ResponseWriter, r *http.Request) { seen.note(r) })
		Expect(client.Do(ctx, get.Request{URL: urlOf(port, "/")})).Error().NotTo(HaveOccurred())
		_, err := client.Do(ctx,
			get.Request{URL: "HTTP://DATA.Example.COM." + urlOf(port, "/")[len("http://data.example.com"):]})
		Expect(err).NotTo(HaveOccurred())
		Expect(seen.requests()[1].Host).To(Equal(seen.requests()[0].Host))
	})

	DescribeTable("fails with a text without addresses and odd hosts",
		func(ctx SpecContext, raw, failureHost, text string) {
			err := failed(client.Do(ctx, get.Request{URL: raw}))
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

		err := failed(client.Do(ctx, get.Request{URL: "http://data.example.com/"}))
		Expect(err.Class).To(Equal(dnsFailed))
		Expect(err).To(MatchError("data.example.com was not found in DNS"))
	})

	It("fails with ConnectFailed if a connection is refused", func(ctx SpecContext) {
		listener := must(net.Listen("tcp", "127.0.0.1:0"))
		port := listener.Addr().(*net.TCPAddr).Port
		Expect(listener.Close()).To(Succeed())

		err := failed(client.Do(ctx, get.Request{URL: urlOf(port, "/")}))
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

var _ = Describe("a response with a bad status", func() {
	It("keeps status, Retry-After and the start of the body", func(ctx SpecContext) {
		now := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
		client := newClient(shortLimits(), newGate(egress.Config{}), get.Deps{Now: func() time.Time { return now }})
		port := serveHTTP(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Date", now.Format(http.TimeFormat))
			w.Header().Set("Retry-After", now.Add(90*time.Second).Format(http.TimeFormat))
			w.WriteHeader(http.StatusServiceUnavailable)
			for range 300 {
				_, _ = io.WriteString(w, secret)
			}
		})

		failure := failed(client.Do(ctx, get.Request{URL: urlOf(port, "/?token="+secret)}))
		Expect(failure).To(MatchError("data.example.com responded with 503"))
		Expect(failure.Class).To(Equal(badStatus))
		Expect(failure.StatusCode).To(Equal(503))
		Expect(failure.RetryAfter).To(Equal(90 * time.Second))
		Expect(failure.Snippet).To(HaveLen(get.MaxSnippet))
		Expect(string(failure.Snippet)).To(HavePrefix(secret))
	})
})
