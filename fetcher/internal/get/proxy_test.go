package get_test

import (
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	"github.com/kv8s/curl-me-that/fetcher/internal/egress"
	"github.com/kv8s/curl-me-that/fetcher/internal/get"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/failure"
)

var _ = Describe("an egress proxy", func() {
	var policy egress.Config
	BeforeEach(func() {
		policy = egress.Config{}
		port := serveHTTP(func(w http.ResponseWriter, r *http.Request) {
			seen.note(r)
			if r.Method == http.MethodConnect {
				w.WriteHeader(http.StatusForbidden)
				return
			}
			_, _ = io.WriteString(w, "by proxy")
		})
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
		gate := suitetest.Must(egress.New(policy, egress.Deps{Resolver: dns.Resolver()}))
		return newClientOf(gate, get.Deps{})
	}

	It("receives the requests that the policy permits", func(ctx SpecContext) {
		response := suitetest.Must(newProxied(nil).Do(ctx, get.Request{URL: "http://data.example.com/x%2F{y}?{q}"}))
		Expect(string(response.Body)).To(Equal("by proxy"))
		Expect(seen.requests()).To(HaveLen(1))
		Expect(seen.requests()[0].RequestURI).To(Equal("http://data.example.com/x%2F{y}?{q}"))
		Expect(seen.requests()[0].Header).To(HaveKey("Proxy-Authorization"))
	})

	DescribeTable("receives nothing that the policy denies:",
		func(ctx SpecContext, raw string, addrs ...string) {
			client := newProxied(map[string][]string{"bad.example.com": addrs})
			Expect(errorOf(client.Do(ctx, get.Request{URL: raw})).Class).To(Equal(failure.AddressDenied))
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
			Expect(err.Class).To(Equal(failure.ConnectFailed))
			Expect(err).To(MatchError("could not connect to data.example.com: the egress proxy refused the connection"))
		},
		Entry("it refuses a tunnel", func() {}, "https://data.example.com/"),
		Entry("it wants another password", func() {
			cfg.Proxy = "http://" + hostPort("127.0.0.1", serve(say("HTTP/1.1 407 No\r\n"+length(0))))
		}, "http://data.example.com/"),
		Entry("it is not listening", func() { cfg.Proxy = "http://127.0.0.1:1" }, "http://data.example.com/"),
	)

	DescribeTable("opens a tunnel by any status of success:", func(ctx SpecContext, status int) {
		ca := newAuthority()
		cfg.CABundle = writeFile("ca.pem", ca.pem())
		port := secureServer(ca, host, nil, redirectOr("hello", http.StatusOK))
		cfg.Proxy = "http://" + hostPort("127.0.0.1", serve(openTunnels(port, status)))
		response := suitetest.Must(newProxied(nil).Do(ctx, get.Request{URL: "https://data.example.com/"}))
		Expect(string(response.Body)).To(Equal("hello"))
	},
		Entry(nil, 200), Entry(nil, 201), Entry(nil, 204), Entry(nil, 299),
	)

	It("is not used for direct hosts", func(ctx SpecContext) {
		policy = egress.Config{AllowCIDRs: []string{"127.0.0.1"}, DirectHosts: []string{"*.corp.example"}}
		client := newProxied(map[string][]string{"data.corp.example": {"127.0.0.1"}})
		direct := serveHTTP(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "direct") })
		response := suitetest.Must(client.Do(ctx, get.Request{URL: "http://" + hostPort("data.corp.example", direct) + "/"}))
		Expect(string(response.Body)).To(Equal("direct"))
		Expect(seen.requests()).To(BeEmpty())
		response = suitetest.Must(client.Do(ctx, get.Request{URL: "http://data.example.com/"}))
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
			response := suitetest.Must(client.Do(ctx, get.Request{URL: "http://data.example.com/"}))
			Expect(string(response.Body)).To(Equal("by proxy"))
			Expect(errorOf(client.Do(ctx, get.Request{URL: "http://data.corp.example/"})).Class).
				To(Equal(failure.DNSFailed), "direct hosts are looked up here")
		})

		DescribeTable("gets nothing that the policy denies by its text:", func(ctx SpecContext, raw string) {
			Expect(errorOf(newProxied(nil).Do(ctx, get.Request{URL: raw})).Class).To(Equal(failure.AddressDenied))
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
		cfg.Proxy = ""
		client := newClient()
		Expect(client.Do(ctx, get.Request{URL: urlOf(serve(say(ok+length(0))), "/")})).Error().NotTo(HaveOccurred())
		Expect(seen.requests()).To(BeEmpty())
	})
})
