package get_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/sync/errgroup"

	"github.com/kv8s/curl-me-that/fetcher/internal/egress"
	"github.com/kv8s/curl-me-that/fetcher/internal/get"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/headerfile"
)

var _ = Describe("credentials", func() {
	var (
		cfg  get.Config
		seen *recorder
		port int
	)

	BeforeEach(func() {
		cfg = shortLimits()
		seen = &recorder{}
		port = serveHTTP(func(w http.ResponseWriter, r *http.Request) {
			seen.note(r)
			redirectOr("hello", http.StatusOK)(w, r)
		})
	})

	// entry is an entry with a login for a host, over http and at the port of the spec.
	entry := func(host, login string) string {
		return fmt.Sprintf("- {host: %q, namespaces: [\"*\"], schemes: [http], ports: [%d], headers: {Authorization: %q}}\n",
			host, port, login)
	}

	at := func(host, path string) string { return "http://" + hostPort(host, port) + path }

	do := func(ctx context.Context, requests ...get.Request) {
		GinkgoHelper()
		client := newClient(cfg, newGate(egress.Config{}), get.Deps{})
		for _, r := range requests {
			Expect(client.Do(ctx, r)).Error().NotTo(HaveOccurred())
		}
	}

	It("from a header file are sent to matching hosts for the listed namespaces", func(ctx SpecContext) {
		cfg.HeaderFile = writeFile("headers.yaml", fmt.Sprintf(`
- host: api.example.com
  namespaces: [team-a]
  schemes: [http]
  ports: [%[1]d]
  headers:
    Authorization: Bearer a
    X-Tenant: a
- host: "*.example.com"
  namespaces: ["team-*"]
  schemes: [http]
  ports: [%[1]d]
  headers: {authorization: Bearer b}
- {host: "*", namespaces: [other, team-a], schemes: [http], ports: [%[1]d], headers: {Authorization: Basic c}}
`, port))
		do(ctx, get.Request{URL: at("api.example.com", "/"), Namespace: "team-a"},
			get.Request{URL: at("api.example.com", "/"), Namespace: "team-b"},
			get.Request{URL: at("api.example.com", "/"), Namespace: "other"},
			get.Request{URL: at("api.example.org", "/"), Namespace: "team-a"})
		Expect(seen.authorizations()).To(Equal([]string{"Bearer a", "Bearer b", "Basic c", "Basic c"}))
		Expect(seen.requests()[0].Header.Get("X-Tenant")).To(Equal("a"))
	})

	DescribeTable("are sent to the host of the URL only:", func(ctx SpecContext, target func() string, sent ...string) {
		cfg.HeaderFile = writeFile("headers.yaml", entry("data.example.com", "Basic a")+entry("*", "Basic e"))
		do(ctx, get.Request{URL: at("data.example.com", "/?to="+target())})
		Expect(seen.authorizations()).To(Equal(sent))
	},
		Entry("a redirect within it", func() string { return "/x" }, "Basic a", "Basic a"),
		Entry("a redirect to another host, and back", func() string {
			return at("evil.example.com", "/?to="+at("data.example.com", "/end"))
		}, "Basic a", "", ""),
		Entry("a redirect to another port", func() string {
			return urlOf(serveHTTP(func(_ http.ResponseWriter, r *http.Request) { seen.note(r) }), "/")
		}, "Basic a", ""),
	)

	It("are sent to https at its default port only, unless an entry allows another", func(ctx SpecContext) {
		cfg.HeaderFile = writeFile("headers.yaml", `
- {host: data.example.com, namespaces: [team-a], pathPrefix: /api, headers: {X-A: b}}
- {host: open.example.com, namespaces: ["*"], schemes: [http, https], ports: [80, 8443], headers: {X-A: b}}
`)
		// Nothing is sent: an untrusted request with credentials fails earlier, and all others fail
		// at the deny list.
		client := newClient(cfg, newGate(egress.Config{DenyHosts: []string{"*"}}), get.Deps{})
		carries := func(url string) bool {
			err := errorOf(client.Do(ctx, get.Request{Namespace: "team-a", URL: url, Untrusted: true}))
			return err.Detail == v1.FailureDetail_FAILURE_DETAIL_DENIED_CREDENTIALS
		}
		for url, want := range map[string]bool{
			"https://data.example.com/api":           true,
			"https://data.example.com/api/v1?q=../x": true,
			"https://data.example.com:443/api/":      true,
			"https://data.example.com/apis":          false,
			"https://data.example.com/":              false,
			"https://data.example.com/api/%2E%2e/x":  false,
			"http://data.example.com/api":            false,
			"http://data.example.com:443/api":        false,
			"https://data.example.com:8443/api":      false,
			"https://open.example.com:8443/":         true,
			"http://open.example.com/":               true,
			"https://open.example.com/":              false,
		} {
			Expect(carries(url)).To(Equal(want), url)
		}
	})

	It("appear in no error", func(ctx SpecContext) {
		cfg.HeaderFile = writeFile("headers.yaml", entry("*", "Basic "+secret))
		client := newClient(cfg, newGate(egress.Config{}), get.Deps{})
		_, err := client.Do(ctx, get.Request{URL: urlOf(serve(say("HTTP/1.1 401 No\r\n"+length(0))), "/")})
		Expect(fmt.Sprintf("%v %+v %#v", err, err, err)).NotTo(ContainSubstring(secret))
	})

	It("are reloaded if the file changes, and kept while it is broken", func(ctx SpecContext) {
		cfg.HeaderFile = writeFile("headers.yaml", entry("*", "Basic a"))
		client, reload := newReloading(cfg, get.Deps{})
		do := func() {
			GinkgoHelper()
			Expect(client.Do(ctx, get.Request{URL: at("data.example.com", "/")})).Error().NotTo(HaveOccurred())
		}
		do()
		replace(cfg.HeaderFile, entry("*", "Basic b"))
		Expect(reload()).To(Succeed())
		do()
		replace(cfg.HeaderFile, "- {host: x.example.com, headers: {X-A: ["+secret+"]}}")
		err := reload()
		Expect(err).To(MatchError(ContainSubstring("line 1: not a YAML list")))
		Expect(err.Error()).NotTo(ContainSubstring(secret))
		do()
		Expect(seen.authorizations()).To(Equal([]string{"Basic a", "Basic b", "Basic b"}))
	})

	It("are available only if an entry matches host and namespace, with any scheme, port or path", func() {
		gate := newGate(egress.Config{})
		mayCarry := func(namespace, url string) bool {
			return newClient(cfg, gate, get.Deps{}).Resolve(get.Request{Namespace: namespace, URL: url}).MayCarry()
		}
		Expect(mayCarry("team-a", "https://data.example.com/")).To(BeFalse(), "there is no file")
		cfg.HeaderFile = writeFile("headers.yaml",
			"- {host: data.example.com, namespaces: [team-a], pathPrefix: /api, headers: {X-A: b}}")
		Expect(mayCarry("team-a", "http://DATA.example.com.:8080/other")).To(BeTrue())
		Expect(mayCarry("team-b", "https://data.example.com/api")).To(BeFalse())
		Expect(mayCarry("team-a", "https://www.example.com/api")).To(BeFalse())
		Expect(mayCarry("team-a", "https://data.example.com/ api")).To(BeFalse())
	})

	It("separate namespaces by the entries for the host, whatever the first hop carries", func() {
		cfg.HeaderFile = writeFile("headers.yaml", `
- {host: data.example.com, namespaces: [team-a], pathPrefix: /api, headers: {X-A: b}}
- {host: "*.example.com", namespaces: ["team-*"], headers: {X-A: c}}
`)
		client := newClient(cfg, newGate(egress.Config{}), get.Deps{})
		share := func(namespace, other, url string) bool {
			return client.Resolve(get.Request{Namespace: namespace, URL: url}) == client.Resolve(get.Request{
				Namespace: other,
				URL:       url,
			})
		}
		for _, url := range []string{
			"https://data.example.com/api", "https://data.example.com/", "http://data.example.com/",
			"https://data.example.com:8443/",
			"https://DATA.example.com./",
		} {
			Expect(share("team-a", "team-b", url)).To(BeFalse(), url)
			Expect(share("team-b", "other", url)).To(BeFalse(), url)
			Expect(share("team-b", "team-c", url)).To(BeTrue(), url)
		}
		Expect(share("team-a", "team-b", "https://www.example.com/")).To(BeTrue())
		Expect(share("team-a", "other", "https://www.example.com/")).To(BeFalse())
		Expect(share("team-a", "other", "https://example.org/")).To(BeTrue())
	})

	It("come from the content of the file when the request was resolved", func(ctx SpecContext) {
		cfg.HeaderFile = writeFile("headers.yaml", "[]")
		client, reload := newReloading(cfg, get.Deps{})
		request := get.Request{Namespace: "team-a", URL: at("data.example.com", "/?to=/x")}
		before := client.Resolve(request)
		replace(cfg.HeaderFile,
			fmt.Sprintf("- {host: \"*\", namespaces: [team-a], schemes: [http], ports: [%d], headers: {Authorization: a}}",
				port))
		Expect(reload()).To(Succeed())
		Expect(client.Resolve(request)).NotTo(Equal(before))
		for _, r := range []get.Request{before, request} {
			Expect(client.Do(ctx, r)).Error().NotTo(HaveOccurred())
		}
		Expect(seen.authorizations()).To(Equal([]string{"", "", "a", "a"}))
	})
})

var _ = Describe("the credentials of teams", func() {
	var (
		cfg    get.Config
		ca     *authority
		seen   *recorder
		port   int
		client *get.Client
		reload func() error
	)
	entry := func(namespace, name, token string) headerfile.Entry {
		return headerfile.Entry{
			Namespaces: []string{namespace}, Source: "Secret " + name, Host: host, Ports: []int{port}, PathPrefix: "/v1",
			Headers: map[string]string{"Authorization": token}, Authorities: ca.pem(),
		}
	}
	put := func(entries ...headerfile.Entry) {
		GinkgoHelper()
		replace(cfg.TeamFile, string(must(json.Marshal(entries))))
		if client != nil {
			Expect(reload()).To(Succeed())
		}
	}
	in := func(namespace, path string) get.Request {
		return get.Request{URL: "https://" + hostPort(host, port) + path, Namespace: namespace}
	}
	BeforeEach(func() {
		cfg, ca, seen, client = shortLimits(), newAuthority(), &recorder{}, nil
		port = secureServer(ca, host, nil, func(w http.ResponseWriter, r *http.Request) {
			seen.note(r)
			if r.Header.Get("Authorization") == "wrong" {
				w.WriteHeader(http.StatusForbidden)
			}
			_, _ = io.WriteString(w, "hello")
		})
		cfg.TeamFile = filepath.Join(GinkgoT().TempDir(), "headers.json")
	})
	sent := func(ctx SpecContext, r get.Request) string {
		GinkgoHelper()
		must(client.Do(ctx, r))
		return seen.lastAuthorization()
	}

	It("are sent only with requests of their namespace, once they exist", func(ctx SpecContext) {
		client, reload = newReloading(cfg, get.Deps{})
		Expect(errorOf(client.Do(ctx, in("team-a", "/v1"))).Class).To(Equal(tlsFailed), "the authority is unknown")
		put(entry("team-a", "rules", "a"), entry("team-b", "rules", "b"))
		Expect(sent(ctx, in("team-a", "/v1"))).To(Equal("a"))
		Expect(sent(ctx, in("team-b", "/v1/x"))).To(Equal("b"))
		for _, r := range []get.Request{in("team-c", "/v1"), in("team-a", "/"), in("", "/v1")} {
			Expect(errorOf(client.Do(ctx, r)).Class).To(Equal(tlsFailed))
		}
		By("changing and removing them")
		put(entry("team-a", "rules", "new"))
		Expect(sent(ctx, in("team-a", "/v1"))).To(Equal("new"))
		Expect(errorOf(client.Do(ctx, in("team-b", "/v1"))).Class).To(Equal(tlsFailed))
		put()
		Expect(errorOf(client.Do(ctx, in("team-a", "/v1"))).Class).To(Equal(tlsFailed))
	})

	It("come after the entries of the header file, and failures name their Secret", func(ctx SpecContext) {
		cfg.CABundle = writeFile("ca.pem", ca.pem())
		cfg.HeaderFile = writeFile("headers.yaml", "- {host: "+host+", namespaces: [team-a], ports: [1, "+
			hostPort("", port)[1:]+"], headers: {Authorization: operator}}\n")
		put(entry("team-a", "rules", "a"), entry("team-b", "rules", "wrong"))
		client, reload = newReloading(cfg, get.Deps{})
		Expect(sent(ctx, in("team-a", "/v1"))).To(Equal("operator"))
		Expect(errorOf(client.Do(ctx, in("team-b", "/v1"))).Credential).To(Equal("Secret rules"))
		Expect(client.Credential("team-b", in("", "/v1").URL)).To(Equal("the credential of Secret rules is sent"))
	})

	DescribeTable("are refused as a whole without a value in the error:",
		func(change func(*headerfile.Entry), text string) {
			e := entry("team-a", "rules", "a")
			change(&e)
			put(e)
			_, err := get.New(cfg, get.Deps{Gate: newGate(egress.Config{})})
			Expect(err).To(MatchError("set up GET: read " + cfg.TeamFile + ": entry 1: " + text))
		},
		Entry("a header", func(e *headerfile.Entry) { e.Headers = map[string]string{"Cookie": secret} },
			"not a header that may be set"),
		Entry("a certificate", func(e *headerfile.Entry) { e.Certificate = secret },
			"not a PEM certificate with its key"),
	)
})

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
		err := errorOf(client.Do(ctx, get.Request{URL: urlOf(countdown(302, seen), "/6")}))
		Expect(err.Class).To(Equal(tooManyRedirects))
		Expect(err).To(MatchError("data.example.com redirected more than 5 times"))
		Expect(seen.requests()).To(HaveLen(6))
	})
})

const login = "login.example.com"

// secureServer serves a name over TLS and asks for client certificates if it has authorities for them.
func secureServer(ca *authority, name string, clients *x509.CertPool, handler http.HandlerFunc) (port int) {
	GinkgoHelper()
	server := httptest.NewUnstartedServer(handler)
	server.TLS = &tls.Config{
		MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{ca.issue(name, time.Now().Add(time.Hour))},
		ClientCAs: clients,
	}
	if clients != nil {
		server.TLS.ClientAuth = tls.VerifyClientCertIfGiven
	}
	server.StartTLS()
	DeferCleanup(server.Close)
	return server.Listener.Addr().(*net.TCPAddr).Port
}

// pemOf returns a certificate and its key.
func pemOf(c tls.Certificate) (certificate, key string) {
	GinkgoHelper()
	der := must(x509.MarshalPKCS8PrivateKey(c.PrivateKey))
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Certificate[0]})),
		string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
}

// testClock advances only on request.
type testClock struct {
	mu sync.Mutex
	at time.Time
}

func (c *testClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *testClock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}

var _ = Describe("a token of OAuth 2.0", func() {
	var (
		ca       *authority
		cfg      get.Config
		clock    *testClock
		seen     *recorder
		asked    atomic.Int32
		answer   atomic.Pointer[http.HandlerFunc]
		accepted atomic.Pointer[string]
		password atomic.Pointer[string]
		request  get.Request
		entry    string
	)
	give := func(handler http.HandlerFunc) { answer.Store(&handler) }
	// grant returns token-1, token-2 and so on.
	grant := func(expires int) {
		give(func(w http.ResponseWriter, r *http.Request) {
			n := asked.Add(1)
			id, secret, _ := r.BasicAuth()
			if r.FormValue("grant_type") != "client_credentials" || r.FormValue("scope") != "read" || id != "me" ||
				secret != *password.Load() {
				w.WriteHeader(http.StatusBadRequest)
				return
			}
			w.Header().Set("Content-Type", "application/json")
			_, _ = fmt.Fprintf(w, `{"access_token":"token-%d","token_type":"bearer","expires_in":%d}`, n, expires)
		})
	}

	BeforeEach(func() {
		ca, cfg, clock, seen = newAuthority(), get.Defaults(), &testClock{at: time.Now()}, &recorder{}
		asked.Store(0)
		accepted.Store(nil)
		password.Store(new("s3cr3t"))
		port := secureServer(ca, host, nil, func(w http.ResponseWriter, r *http.Request) {
			seen.note(r)
			if good := accepted.Load(); good != nil && r.Header.Get("Authorization") != "Bearer "+*good {
				w.WriteHeader(http.StatusUnauthorized)
			}
			_, _ = io.WriteString(w, "hello")
		})
		loginPort := secureServer(ca, login, nil, func(w http.ResponseWriter, r *http.Request) { (*answer.Load())(w, r) })
		request = get.Request{URL: "https://" + hostPort(host, port) + "/", Namespace: "team-a"}
		cfg.CABundle = writeFile("ca.pem", ca.pem())
		secret := writeFile("api-secret", "s3cr3t\n")
		entry = fmt.Sprintf("- {host: %s, ports: [%d], namespaces: [team-a], oauth2: {tokenURL: \"https://%s/token\", "+
			"clientID: me, clientSecretFile: api-secret, scopes: [read]}}\n",
			host, port, hostPort(login, loginPort))
		cfg.HeaderFile = filepath.Join(filepath.Dir(secret), "headers.yaml")
		replace(cfg.HeaderFile, entry)
	})
	newTokenClient := func() *get.Client { return newClient(cfg, newGate(egress.Config{}), get.Deps{Now: clock.Now}) }
	It("is fetched once for all requests that wait for it", func(ctx SpecContext) {
		grant(3600)
		client := newTokenClient()
		together(ctx, client, 20, request)
		Expect(asked.Load()).To(BeEquivalentTo(1))
		Expect(seen.authorizations()).To(HaveLen(20))
		Expect(seen.authorizations()).To(HaveEach("Bearer token-1"))
	})

	It("is renewed a minute before it expires, while requests use the old one", func(ctx SpecContext) {
		grant(600)
		client := newTokenClient()
		do := func() {
			GinkgoHelper()
			Expect(client.Do(ctx, request)).Error().NotTo(HaveOccurred())
		}
		do()
		clock.advance(8*time.Minute + 58*time.Second)
		do()
		Expect(asked.Load()).To(BeEquivalentTo(1))
		clock.advance(3 * time.Second)
		do()
		Eventually(func() string { do(); return seen.lastAuthorization() }).Should(Equal("Bearer token-2"))
		Expect(asked.Load()).To(BeEquivalentTo(2))
		By("using the token until it expires if the token URL fails")
		give(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) })
		clock.advance(9*time.Minute + 30*time.Second)
		do()
		clock.advance(time.Minute)
		Expect(errorOf(client.Do(ctx, request)).Class).To(Equal(v1.FailureClass_FAILURE_CLASS_CREDENTIALS_FAILED))
	})

	It("is renewed once after a 401, under load, without a failed fetch", func(ctx SpecContext) {
		grant(3600)
		client := newTokenClient()
		accepted.Store(new("token-1"))
		Expect(client.Do(ctx, request)).Error().NotTo(HaveOccurred())
		clock.advance(time.Minute)
		accepted.Store(new("token-2"))
		together(ctx, client, 20, request)
		Expect(asked.Load()).To(BeEquivalentTo(2))
		By("not renewing it again if the new one is refused, too")
		accepted.Store(new("none"))
		err := errorOf(client.Do(ctx, request))
		Expect(err.StatusCode).To(Equal(http.StatusUnauthorized))
		Expect(err.Credential).To(Equal("entry 1 of the header file"))
		Expect(asked.Load()).To(BeEquivalentTo(2))
	})

	It("is renewed with a client secret that was rotated, under load, without a failed fetch", func(ctx SpecContext) {
		grant(600)
		client, reload := newReloading(cfg, get.Deps{Now: clock.Now})
		load := func() { together(ctx, client, 20, request) }
		load()
		replace(filepath.Join(filepath.Dir(cfg.HeaderFile), "api-secret"), "rotated\n")
		password.Store(new("rotated"))
		Expect(reload()).To(Succeed())
		clock.advance(9*time.Minute + 30*time.Second)
		Eventually(func() string { load(); return seen.lastAuthorization() }).Should(Equal("Bearer token-2"))
	})

	It("is not requested from the target of a redirect", func(ctx SpecContext) {
		leaked := &recorder{}
		target := secureServer(ca, host, nil, func(_ http.ResponseWriter, r *http.Request) { leaked.note(r) })
		give(func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "https://"+hostPort(host, target)+"/", http.StatusTemporaryRedirect)
		})
		Expect(errorOf(newTokenClient().Do(ctx, request)).Class).To(Equal(v1.FailureClass_FAILURE_CLASS_CREDENTIALS_FAILED))
		Expect(leaked.requests()).To(BeEmpty())
	})

	DescribeTable("is not accepted from a token URL that",
		func(ctx SpecContext, status int, body string) {
			give(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(status)
				_, _ = io.WriteString(w, body)
			})
			err := errorOf(newTokenClient().Do(ctx, request))
			Expect(err.Class).To(Equal(v1.FailureClass_FAILURE_CLASS_CREDENTIALS_FAILED))
			Expect(err.Credential).To(Equal(login))
			Expect(err).To(MatchError("login.example.com gave no token for data.example.com"))
			Expect(seen.authorizations()).To(BeEmpty())
		},
		Entry("fails", 500, secret),
		Entry("denies", 401, `{"error":"`+secret+`"}`),
		Entry("sends no JSON", 200, secret),
		Entry("sends no token", 200, `{}`),
		Entry("sends another type of token", 200, `{"access_token":"a","token_type":"mac"}`),
		Entry("sends a token with a line break", 200, `{"access_token":"a\r\nX-Evil: b","token_type":"bearer"}`),
		Entry("sends a token that has expired", 200, `{"access_token":"a","token_type":"bearer","expires_in":-1}`),
		Entry("sends a token without end", 200, `{"token_type":"bearer","access_token":"`+strings.Repeat("a", 1<<21)),
	)

	It("is awaited no longer than the GET may take", func(ctx SpecContext) {
		release := make(chan struct{})
		DeferCleanup(func() { close(release) })
		give(func(_ http.ResponseWriter, r *http.Request) {
			select {
			case <-release:
			case <-r.Context().Done():
			}
		})
		start := time.Now()
		Expect(errorOf(newTokenClient().Do(ctx, request)).Class).To(Equal(v1.FailureClass_FAILURE_CLASS_CREDENTIALS_FAILED))
		Expect(time.Since(start)).To(BeNumerically("<", cfg.Timeout))
	})

	It("is not requested if the policy denies the token URL", func(ctx SpecContext) {
		grant(3600)
		client := newClient(cfg, newGate(egress.Config{DenyHosts: []string{login}}), get.Deps{Now: clock.Now})
		Expect(errorOf(client.Do(ctx, request)).Class).To(Equal(v1.FailureClass_FAILURE_CLASS_CREDENTIALS_FAILED))
		Expect(asked.Load()).To(BeZero())
	})
})

var _ = Describe("the files of an entry", func() {
	var (
		private *authority
		cfg     get.Config
		dir     string
		port    int
		seen    *recorder
	)
	// names returns path, token and client certificate of each request.
	names := func() (all []string) {
		for _, r := range seen.requests() {
			name := r.Header.Get("Authorization")
			if r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
				name += r.TLS.PeerCertificates[0].DNSNames[0]
			}
			all = append(all, r.URL.Path+" "+name)
		}
		return all
	}
	put := func(name, content string) { replace(filepath.Join(dir, name), content) }
	certify := func(name string) {
		certificate, key := pemOf(private.issue(name, time.Now().Add(time.Hour)))
		put("client.key", key)
		put("client.crt", certificate)
	}
	BeforeEach(func() {
		private, cfg, seen = newAuthority(), get.Defaults(), &recorder{}
		cfg.HeaderFile = writeFile("headers.yaml", "[]")
		dir = filepath.Dir(cfg.HeaderFile)
		port = secureServer(private, host, private.pool(), func(w http.ResponseWriter, r *http.Request) {
			seen.note(r)
			redirectOr("hello", http.StatusOK)(w, r)
		})
		put("ca.crt", private.pem())
	})
	in := func(namespace, path string) get.Request {
		return get.Request{URL: "https://" + hostPort(host, port) + path, Namespace: namespace}
	}
	do := func(ctx context.Context, client *get.Client, r get.Request) {
		GinkgoHelper()
		Expect(client.Do(ctx, r)).Error().NotTo(HaveOccurred())
	}

	It("hold a client certificate and authorities for the namespaces and paths of the entry only", func(ctx SpecContext) {
		certify("team-a")
		put("headers.yaml", fmt.Sprintf("- {host: %[1]s, ports: [%[2]d], namespaces: [team-a], pathPrefix: /v1, "+
			"clientCertificate: {certFile: client.crt, keyFile: client.key}, caFile: ca.crt}\n"+
			"- {host: %[1]s, ports: [%[2]d], namespaces: [\"*\"], caFile: ca.crt}\n", host, port))
		client, reload := newReloading(cfg, get.Deps{})
		do(ctx, client, in("team-a", "/v1"))
		do(ctx, client, in("team-b", "/v1"))
		do(ctx, client, in("team-a", "/v2"))
		do(ctx, client, in("team-a", "/v1?to=/v2"))
		Expect(names()).To(Equal([]string{"/v1 team-a", "/v1 ", "/v2 ", "/v1 team-a", "/v2 "}))
		By("trusting the authorities nowhere else")
		put("headers.yaml", fmt.Sprintf("- {host: %s, ports: [%d], namespaces: [team-a], caFile: ca.crt}\n", host, port))
		Expect(reload()).To(Succeed())
		do(ctx, client, in("team-a", "/"))
		Expect(errorOf(client.Do(ctx, in("team-b", "/"))).Class).To(Equal(tlsFailed))
	})

	It("are read again when they change, under load, without a failed fetch", func(ctx SpecContext) {
		certify("one")
		put("token", "one\n")
		put("headers.yaml", fmt.Sprintf("- {host: %s, ports: [%d], namespaces: [team-a], bearerFile: token, "+
			"clientCertificate: {certFile: client.crt, keyFile: client.key}, caFile: ca.crt}\n", host, port))
		client, reload := newReloading(cfg, get.Deps{})
		loading, stop := context.WithCancel(ctx)
		var group errgroup.Group
		for range 4 {
			group.Go(func() error {
				for loading.Err() == nil {
					if _, err := client.Do(ctx, in("team-a", "/")); err != nil {
						return err
					}
				}
				return nil
			})
		}
		last := func() string { all := names(); return all[max(0, len(all)-1)] }
		Eventually(seen.requests).ShouldNot(BeEmpty())
		Expect(last()).To(Equal("/ Bearer oneone"))
		certificate, key := pemOf(private.issue("two", time.Now().Add(time.Hour)))
		put("client.key", key) // without its certificate, so the last pair stays in use
		put("token", "two\n")
		_ = reload()
		Eventually(last).Should(Equal("/ Bearer twoone"))
		put("client.crt", certificate)
		_ = reload()
		Eventually(last).Should(Equal("/ Bearer twotwo"))
		stop()
		Expect(group.Wait()).To(Succeed())
	})

	It("may appear after the header file", func() {
		_, reload := newReloading(cfg, get.Deps{})
		put("headers.yaml", "- {host: a.example.com, namespaces: [team-a], bearerFile: token}\n")
		Expect(reload()).To(MatchError(ContainSubstring("entry 1: bearerFile: no such file or directory")))
		put("token", "one")
		Expect(reload()).To(Succeed())
	})

	It("are read again after a 401", func(ctx SpecContext) {
		port := serveHTTP(func(w http.ResponseWriter, r *http.Request) {
			seen.note(r)
			if r.Header.Get("Authorization") != "Bearer two" {
				w.WriteHeader(http.StatusUnauthorized)
			}
		})
		put("token", "one")
		put("headers.yaml",
			fmt.Sprintf("- {host: %s, ports: [%d], namespaces: [team-a], bearerFile: token, schemes: [http]}\n", host, port))
		client := newClient(cfg, newGate(egress.Config{}), get.Deps{})
		put("token", "two")
		do(ctx, client, get.Request{URL: urlOf(port, "/"), Namespace: "team-a"})
		Expect(names()).To(Equal([]string{"/ Bearer one", "/ Bearer two"}))
	})
})

var _ = It("a 401 or 403 says which credential was sent", func(ctx SpecContext) {
	port := serveHTTP(redirectOr("", http.StatusForbidden))
	cfg := shortLimits()
	cfg.HeaderFile = writeFile("headers.yaml", fmt.Sprintf(
		"- {host: other, namespaces: [team-a], headers: {X-A: b}}\n- {host: %s, namespaces: [team-a], schemes: [http], "+
			"ports: [%d], headers: {X-A: b}}\n", host, port))
	client := newClient(cfg, newGate(egress.Config{}), get.Deps{})
	refusal := func(namespace, path string) *get.Error {
		GinkgoHelper()
		return errorOf(client.Do(ctx, get.Request{URL: urlOf(port, path), Namespace: namespace}))
	}
	Expect(refusal("team-a", "/").Credential).To(Equal("entry 2 of the header file"))
	Expect(refusal("team-b", "/").Credential).To(BeEmpty())
	Expect(refusal("team-b", "/").Detail).To(Equal(v1.FailureDetail_FAILURE_DETAIL_NO_CREDENTIAL))
	elsewhere := refusal("team-a", "/?to=http://"+hostPort("other.example.com", port)+"/")
	Expect(elsewhere.Credential).To(BeEmpty())
	Expect(elsewhere.Detail).To(Equal(v1.FailureDetail_FAILURE_DETAIL_UNSPECIFIED), "another host refused")
	Expect(client.Credential("team-a", urlOf(port, "/"))).
		To(Equal("the credential of entry 2 of the header file is sent"))
	Expect(client.Credential("team-b", urlOf(port, "/"))).
		To(Equal("no credential is configured for this URL and namespace"))
})
