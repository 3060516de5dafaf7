package get_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	"github.com/kv8s/curl-me-that/fetcher/internal/egress"
	"github.com/kv8s/curl-me-that/fetcher/internal/get"
	"github.com/kv8s/curl-me-that/proto/failure"
)

var _ = Describe("a client", func() {
	It("observes the duration of each phase", func(ctx SpecContext) {
		ca, heard, counts := newAuthority(), make(chan get.Phase, 100), map[get.Phase]int{}
		observed := func() map[get.Phase]int {
			for len(heard) > 0 {
				counts[<-heard]++
			}
			return counts
		}
		cfg.CABundle = writeFile("ca.pem", ca.pem())
		observer := &get.Observer{Phase: func(phase get.Phase, _ time.Duration) { heard <- phase }}
		client := newClient()
		port := secureServer(ca, host, nil, redirectOr("hello", http.StatusOK))

		Expect(client.Do(ctx, get.Request{URL: httpsURL(port), Observer: observer})).Error().NotTo(HaveOccurred())
		Expect(observed()).To(Equal(map[get.Phase]int{
			"dns": 1, "connect": 1, "tls": 1, "first_byte": 1, "transfer": 1, "total": 1,
		}))

		Expect(client.Do(ctx, get.Request{URL: "http://10.0.0.1/", Observer: observer})).Error().To(HaveOccurred())
		Expect(client.Do(ctx, get.Request{URL: httpsURL(port), Observer: observer})).Error().NotTo(HaveOccurred())
		Expect(observed()).To(Equal(map[get.Phase]int{
			"dns": 2, "connect": 2, "tls": 2, "first_byte": 2, "transfer": 2, "total": 3,
		}))
	})

	DescribeTable("rejects an invalid configuration",
		func(spoil func(*get.Config), text string) {
			cfg := get.Defaults()
			spoil(&cfg)
			Expect(get.New(cfg, get.Deps{Gate: newGate(egress.Config{})})).Error().To(MatchError("set up GET: " + text))
		},
		Entry(nil, func(c *get.Config) { c.Proxy = "http://me:" + secret + "@:x" },
			"proxy must be a URL such as http://proxy.example.com:3128"),
		Entry(nil, func(c *get.Config) { c.Proxy = "socks5://proxy" },
			"proxy must be a URL such as http://proxy.example.com:3128"),
		Entry(nil, func(c *get.Config) { c.CABundle = "/missing" }, "open /missing: no such file or directory"),
		Entry(nil, func(c *get.Config) { c.HeaderFile = "/missing" }, "open /missing: no such file or directory"),
	)
})

var _ = Describe("a request", func() {
	var client *get.Client
	BeforeEach(func() { client = newClient() })

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
			Expect(err.Class).To(Equal(failure.AddressDenied))
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
		gate := suitetest.Must(egress.New(egress.Config{}, egress.Deps{Resolver: names.Resolver()}))
		client = newClientOf(gate, get.Deps{})

		err := errorOf(client.Do(ctx, get.Request{URL: "http://data.example.com/"}))
		Expect(err.Class).To(Equal(failure.DNSFailed))
		Expect(err).To(MatchError("data.example.com was not found in DNS"))
	})

	It("fails with ConnectFailed if a connection is refused", func(ctx SpecContext) {
		listener := suitetest.Must(net.Listen("tcp", "127.0.0.1:0"))
		port := listener.Addr().(*net.TCPAddr).Port
		Expect(listener.Close()).To(Succeed())

		err := errorOf(client.Do(ctx, get.Request{URL: urlOf(port, "/")}))
		Expect(err.Class).To(Equal(failure.ConnectFailed))
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
