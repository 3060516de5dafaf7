package get_test

import (
	"encoding/json"
	"io"
	"net/http"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/fetcher/internal/egress"
	"github.com/kv8s/curl-me-that/fetcher/internal/get"
	"github.com/kv8s/curl-me-that/proto/headerfile"
)

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
		Expect(failed(client.Do(ctx, in("team-a", "/v1"))).Class).To(Equal(tlsFailed), "the authority is unknown")
		put(entry("team-a", "rules", "a"), entry("team-b", "rules", "b"))
		Expect(sent(ctx, in("team-a", "/v1"))).To(Equal("a"))
		Expect(sent(ctx, in("team-b", "/v1/x"))).To(Equal("b"))
		for _, r := range []get.Request{in("team-c", "/v1"), in("team-a", "/"), in("", "/v1")} {
			Expect(failed(client.Do(ctx, r)).Class).To(Equal(tlsFailed))
		}
		By("changing and removing them")
		put(entry("team-a", "rules", "new"))
		Expect(sent(ctx, in("team-a", "/v1"))).To(Equal("new"))
		Expect(failed(client.Do(ctx, in("team-b", "/v1"))).Class).To(Equal(tlsFailed))
		put()
		Expect(failed(client.Do(ctx, in("team-a", "/v1"))).Class).To(Equal(tlsFailed))
	})

	It("are used after those of the header file, and named by their Secret", func(ctx SpecContext) {
		cfg.CABundle = writeFile("ca.pem", ca.pem())
		cfg.HeaderFile = writeFile("headers.yaml", "- {host: "+host+", namespaces: [team-a], ports: [1, "+
			hostPort("", port)[1:]+"], headers: {Authorization: operator}}\n")
		put(entry("team-a", "rules", "a"), entry("team-b", "rules", "wrong"))
		client, reload = newReloading(cfg, get.Deps{})
		Expect(sent(ctx, in("team-a", "/v1"))).To(Equal("operator"))
		Expect(failed(client.Do(ctx, in("team-b", "/v1"))).Credential).To(Equal("Secret rules"))
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
