package get_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	"github.com/kv8s/curl-me-that/fetcher/internal/egress"
	"github.com/kv8s/curl-me-that/fetcher/internal/get"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/failure"
	"github.com/kv8s/curl-me-that/proto/headerfile"
)

var _ = Describe("credentials", func() {
	var port int
	BeforeEach(func() {
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
		client := newClient()
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

	It("are none if an entry sets only what everybody sends", func(ctx SpecContext) {
		cfg.HeaderFile = writeFile("headers.yaml", fmt.Sprintf(`
- {host: api.example.com, namespaces: [a], schemes: [http], ports: [%[1]d], headers: {user-agent: a, Accept: b}}
- {host: api.example.com, namespaces: [b], schemes: [http], ports: [%[1]d], headers: {User-Agent: a, X-Key: b}}
`, port))
		client := newClient()
		for namespace, sent := range map[string]bool{"a": false, "b": true} {
			response, err := client.Do(ctx, get.Request{URL: at("api.example.com", "/"), Namespace: namespace})
			Expect(err).NotTo(HaveOccurred())
			Expect(response.Credential).To(Equal(sent))
			Expect(strings.Contains(client.Credential(namespace, at("api.example.com", "/")), "is sent")).To(Equal(sent))
		}
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
		// Nothing is sent: an untrusted request with credentials fails earlier, and all others fail at the deny list.
		client := newClientOf(newGate(egress.Config{DenyHosts: []string{"*"}}), get.Deps{})
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
		client := newClient()
		_, err := client.Do(ctx, get.Request{URL: urlOf(serve(say("HTTP/1.1 401 No\r\n"+length(0))), "/")})
		Expect(fmt.Sprintf("%v %+v %#v", err, err, err)).NotTo(ContainSubstring(secret))
	})

	It("are reloaded if the file changes, and kept while it is broken", func(ctx SpecContext) {
		cfg.HeaderFile = writeFile("headers.yaml", entry("*", "Basic a"))
		client, reload := newReloading(get.Deps{})
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

	It("separate namespaces by the entries for the host, whatever the first hop carries", func() {
		cfg.HeaderFile = writeFile("headers.yaml", `
- {host: data.example.com, namespaces: [team-a], pathPrefix: /api, headers: {X-A: b}}
- {host: "*.example.com", namespaces: ["team-*"], headers: {X-A: c}}
`)
		cfg.TenantFile = writeFile("teams.json",
			`[{"host": "team.example.org", "namespaces": ["team-a"], "source": "Secret x", "headers": {"X-A": "d"}}]`)
		client := newClient()
		share := func(namespace, other, url string) bool {
			return client.Resolve(get.Request{Namespace: namespace, URL: url}) == client.Resolve(get.Request{
				Namespace: other,
				URL:       url,
			})
		}
		other := client.Resolve(get.Request{Namespace: "other", URL: "https://data.example.com/api"})
		Expect(other.MayCarry()).To(BeFalse(), "without an entry, a request needs no signature")
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
		Expect(share("team-a", "team-b", "https://team.example.org/")).To(BeFalse())
		Expect(share("team-b", "other", "https://team.example.org/")).To(BeTrue())
	})

	It("come from the content of the file when the request was resolved", func(ctx SpecContext) {
		cfg.HeaderFile = writeFile("headers.yaml", "[]")
		client, reload := newReloading(get.Deps{})
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
		ca     *authority
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
		replace(cfg.TenantFile, string(suitetest.Must(json.Marshal(entries))))
		if client != nil {
			Expect(reload()).To(Succeed())
		}
	}
	in := func(namespace, path string) get.Request {
		return get.Request{URL: "https://" + hostPort(host, port) + path, Namespace: namespace}
	}
	BeforeEach(func() {
		ca, client = newAuthority(), nil
		port = secureServer(ca, host, nil, func(w http.ResponseWriter, r *http.Request) {
			seen.note(r)
			if r.Header.Get("Authorization") == "wrong" {
				w.WriteHeader(http.StatusForbidden)
			}
			_, _ = io.WriteString(w, "hello")
		})
		cfg.TenantFile = filepath.Join(GinkgoT().TempDir(), "headers.json")
	})
	sent := func(ctx SpecContext, r get.Request) string {
		GinkgoHelper()
		suitetest.Must(client.Do(ctx, r))
		return seen.lastAuthorization()
	}

	It("are sent only with requests of their namespace, once they exist", func(ctx SpecContext) {
		client, reload = newReloading(get.Deps{})
		Expect(errorOf(client.Do(ctx, in("team-a", "/v1"))).Class).To(Equal(failure.TLSFailed), "the authority is unknown")
		put(entry("team-a", "rules", "a"), entry("team-b", "rules", "b"))
		Expect(sent(ctx, in("team-a", "/v1"))).To(Equal("a"))
		Expect(sent(ctx, in("team-b", "/v1/x"))).To(Equal("b"))
		for _, r := range []get.Request{in("team-c", "/v1"), in("team-a", "/"), in("", "/v1")} {
			Expect(errorOf(client.Do(ctx, r)).Class).To(Equal(failure.TLSFailed))
		}
		By("changing and removing them")
		put(entry("team-a", "rules", "new"))
		Expect(sent(ctx, in("team-a", "/v1"))).To(Equal("new"))
		Expect(errorOf(client.Do(ctx, in("team-b", "/v1"))).Class).To(Equal(failure.TLSFailed))
		put()
		Expect(errorOf(client.Do(ctx, in("team-a", "/v1"))).Class).To(Equal(failure.TLSFailed))
	})

	It("come after the entries of the header file, and failures name their Secret", func(ctx SpecContext) {
		cfg.CABundle = writeFile("ca.pem", ca.pem())
		cfg.HeaderFile = writeFile("headers.yaml", "- {host: "+host+", namespaces: [team-a], ports: [1, "+
			hostPort("", port)[1:]+"], headers: {Authorization: operator}}\n")
		put(entry("team-a", "rules", "a"), entry("team-b", "rules", "wrong"))
		client, reload = newReloading(get.Deps{})
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
			Expect(err).To(MatchError("set up GET: read " + cfg.TenantFile + ": entry 1: " + text))
		},
		Entry("a header", func(e *headerfile.Entry) { e.Headers = map[string]string{"Cookie": secret} },
			"not a header that may be set"),
		Entry("a certificate", func(e *headerfile.Entry) { e.Certificate = secret },
			"not a PEM certificate with its key"),
	)
})

var _ = It("a 401 or 403 says which credential was sent", func(ctx SpecContext) {
	port := serveHTTP(redirectOr("", http.StatusForbidden))
	cfg.HeaderFile = writeFile("headers.yaml", fmt.Sprintf(
		"- {host: other, namespaces: [team-a], headers: {X-A: b}}\n- {host: %s, namespaces: [team-a], schemes: [http], "+
			"ports: [%d], headers: {X-A: b}}\n", host, port))
	client := newClient()
	refusal := func(namespace, path string) *get.Error {
		GinkgoHelper()
		return errorOf(client.Do(ctx, get.Request{URL: urlOf(port, path), Namespace: namespace}))
	}
	Expect(refusal("team-a", "/").Credential).To(Equal("entry 2 of the header file"))
	Expect(refusal("team-b", "/").Credential).To(BeEmpty())
	Expect(refusal("team-b", "/").Detail).To(Equal(v1.FailureDetail_FAILURE_DETAIL_NO_CREDENTIAL))
	Expect(refusal("team-b", "/?to=/").Redirected).To(BeFalse(), "the host itself refused")
	elsewhere := refusal("team-a", "/?to=http://"+hostPort("other.example.com", port)+"/")
	Expect(elsewhere.Credential).To(BeEmpty())
	Expect(elsewhere.Detail).To(Equal(v1.FailureDetail_FAILURE_DETAIL_UNSPECIFIED), "another host refused")
	Expect(elsewhere.Redirected).To(BeTrue(), "which pauses no host")
	Expect(client.Credential("team-a", urlOf(port, "/"))).
		To(Equal("the credential of entry 2 of the header file is sent"))
	Expect(client.Credential("team-b", urlOf(port, "/"))).
		To(Equal("no credential is configured for this URL and namespace"))
})
