package get_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/fetcher/internal/egress"
	"github.com/kv8s/curl-me-that/fetcher/internal/get"
)

var _ = Describe("credentials", func() {
	var (
		cfg  get.Config
		seen *recorder
		port int
	)

	BeforeEach(func() {
		cfg = impatience()
		seen = &recorder{}
		port = serveHTTP(func(w http.ResponseWriter, r *http.Request) {
			seen.note(r)
			if to := r.URL.Query().Get("to"); to != "" {
				w.Header().Set("Location", to)
				w.WriteHeader(http.StatusFound)
			}
			_, _ = io.WriteString(w, "hello")
		})
	})

	at := func(host, path string) string { return "http://" + hostPort(host, port) + path }

	do := func(ctx context.Context, requests ...get.Request) {
		GinkgoHelper()
		client := newClient(cfg, newGate(egress.Config{}), get.Deps{})
		for _, r := range requests {
			_, err := client.Do(ctx, r)
			Expect(err).NotTo(HaveOccurred())
		}
	}

	authorizations := func() []string {
		var all []string
		for _, r := range seen.requests() {
			all = append(all, r.Header.Get("Authorization"))
		}
		return all
	}

	basic := func(user, password string) string {
		r, _ := http.NewRequest(http.MethodGet, "/", http.NoBody)
		r.SetBasicAuth(user, password)
		return r.Header.Get("Authorization")
	}

	It("of a netrc file go to their machine", func(ctx SpecContext) {
		cfg.Netrc = writeFile("netrc", "machine data.example.com login me password \"p w\"\nmachine other.example.com login you password x")
		do(ctx, get.Request{URL: at("data.example.com", "/")},
			get.Request{URL: at("DATA.example.com.", "/")},
			get.Request{URL: at("other.example.com", "/")},
			get.Request{URL: at("www.example.com", "/")})
		Expect(authorizations()).To(Equal([]string{basic("me", "p w"), basic("me", "p w"), basic("you", "x"), ""}))
	})

	It("of the default entry go to every other host", func(ctx SpecContext) {
		cfg.Netrc = writeFile("netrc", "machine data.example.com login me password a\ndefault login all password b\n")
		do(ctx, get.Request{URL: at("data.example.com", "/")}, get.Request{URL: at("www.example.com", "/")})
		Expect(authorizations()).To(Equal([]string{basic("me", "a"), basic("all", "b")}))
	})

	It("of a header file go to the hosts of a pattern and the namespaces of a list", func(ctx SpecContext) {
		cfg.Netrc = writeFile("netrc", "default login me password a\n")
		cfg.HeaderFile = writeFile("headers.yaml", `
- host: api.example.com
  namespaces: [team-a]
  headers:
    Authorization: Bearer a
    X-Tenant: a
- host: "*.example.com"
  namespaces: ["team-*"]
  headers: {authorization: Bearer b}
`)
		do(ctx, get.Request{URL: at("api.example.com", "/"), Namespace: "team-a"},
			get.Request{URL: at("api.example.com", "/"), Namespace: "team-b"},
			get.Request{URL: at("api.example.com", "/"), Namespace: "other"},
			get.Request{URL: at("api.example.org", "/"), Namespace: "team-a"})
		Expect(authorizations()).To(Equal([]string{"Bearer a", "Bearer b", basic("me", "a"), basic("me", "a")}))
		Expect(seen.requests()[0].Header.Get("X-Tenant")).To(Equal("a"))
	})

	It("stay with their host over a redirect within it", func(ctx SpecContext) {
		cfg.Netrc = writeFile("netrc", "machine data.example.com login me password a\n")
		do(ctx, get.Request{URL: at("data.example.com", "/?to=/x")})
		Expect(authorizations()).To(Equal([]string{basic("me", "a"), basic("me", "a")}))
	})

	It("never follow a redirect to another host, nor come back from there", func(ctx SpecContext) {
		cfg.Netrc = writeFile("netrc", "machine data.example.com login me password a\nmachine evil.example.com login e password e\n")
		cfg.HeaderFile = writeFile("headers.yaml", "- {host: \"*\", headers: {X-Token: t}}\n")
		back := at("data.example.com", "/end")
		do(ctx, get.Request{URL: at("data.example.com", "/?to="+at("evil.example.com", "/?to="+back))})
		Expect(authorizations()).To(Equal([]string{basic("me", "a"), "", ""}))
		for _, r := range seen.requests()[1:] {
			Expect(r.Header).NotTo(HaveKey("X-Token"))
		}
	})

	It("never follow a redirect to another port of the host", func(ctx SpecContext) {
		cfg.Netrc = writeFile("netrc", "machine data.example.com login me password a\n")
		other := &recorder{}
		otherPort := serveHTTP(func(_ http.ResponseWriter, r *http.Request) { other.note(r) })
		do(ctx, get.Request{URL: at("data.example.com", "/?to="+urlOf(otherPort, "/"))})
		Expect(other.requests()).To(HaveLen(1))
		Expect(other.requests()[0].Header).NotTo(HaveKey("Authorization"))
	})

	It("appear in no error", func(ctx SpecContext) {
		cfg.Netrc = writeFile("netrc", "machine data.example.com login me password "+secret+"\n")
		client := newClient(cfg, newGate(egress.Config{}), get.Deps{})
		_, err := client.Do(ctx, get.Request{URL: urlOf(serve(say("HTTP/1.1 401 No\r\n"+length(0))), "/")})
		Expect(fmt.Sprintf("%v %+v %#v", err, err, err)).NotTo(ContainSubstring(secret))
	})

	It("are read again when the file changes, and kept when it is broken", func(ctx SpecContext) {
		ticks := make(chan time.Time)
		reports := make(chan error, 4)
		cfg.Netrc = writeFile("netrc", "default login me password a")
		cfg.HeaderFile = writeFile("headers.yaml", "- {host: x.example.com, headers: {X-A: b}}")
		client := newClient(cfg, newGate(egress.Config{}), get.Deps{
			Ticks:    ticks,
			OnReload: func(_ string, err error) { reports <- err },
		})
		do := func() {
			GinkgoHelper()
			_, err := client.Do(ctx, get.Request{URL: at("data.example.com", "/")})
			Expect(err).NotTo(HaveOccurred())
		}
		do()
		replace(cfg.Netrc, "default login me password b")
		ticks <- time.Now()
		Eventually(reports).Should(Receive(BeNil()))
		do()
		replace(cfg.Netrc, "default login me password "+secret+" "+secret)
		ticks <- time.Now()
		var err error
		Eventually(reports).Should(Receive(&err))
		Expect(err).To(MatchError(ContainSubstring("line 1: unknown word")))
		Expect(err.Error()).NotTo(ContainSubstring(secret))
		do()
		replace(cfg.HeaderFile, "- {host: x.example.com, headers: {X-A: ["+secret+"]}}")
		ticks <- time.Now()
		Eventually(reports).Should(Receive(&err))
		Expect(err).To(MatchError(ContainSubstring("line 1: not a YAML list")))
		Expect(err.Error()).NotTo(ContainSubstring(secret))
		Expect(authorizations()).To(Equal([]string{basic("me", "a"), basic("me", "b"), basic("me", "b")}))
	})

	It("part requests that would otherwise share a GET", func() {
		cfg.HeaderFile = writeFile("headers.yaml", "- {host: data.example.com, namespaces: [team-a], headers: {X-A: b}}")
		client := newClient(cfg, newGate(egress.Config{}), get.Deps{})
		key := func(namespace, url string) get.Key { return client.Key(get.Request{Namespace: namespace, URL: url}) }

		Expect(key("team-a", at("data.example.com", "/"))).To(Equal(key("team-a", at("data.example.com", "/"))))
		Expect(key("team-a", at("data.example.com", "/"))).NotTo(Equal(key("team-b", at("data.example.com", "/"))))
		Expect(key("team-b", at("data.example.com", "/"))).To(Equal(key("team-c", at("data.example.com", "/"))))
		Expect(key("team-b", at("data.example.com", "/"))).NotTo(Equal(key("team-b", at("data.example.com", "/x"))))
		Expect(key("team-a", at("other.example.com", "/"))).To(Equal(key("team-b", at("other.example.com", "/"))))
	})
})
