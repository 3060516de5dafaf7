package engine_test

import (
	"cmp"
	"crypto/ed25519"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/kv8s/curl-me-that/deploy/testkit/natstest"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/headerfile"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/signature"
)

// tenants are namespaces with the same URL. It redirects to a URL for which some have credentials.
type tenants struct {
	*world
	*fetcher
	signer *signature.Signer

	mu     sync.Mutex
	status int
	// reports has the Authorization of each request for a report.
	reports []string
}

// answer redirects within http or up to https, and gives each client of OAuth 2.0 its name as the
// token. The final response has the Authorization.
func (t *tenants) answer(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.URL.Path == "/token":
		id, _, _ := r.BasicAuth()
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"token_type":"bearer","access_token":%q}`, id)
		return
	case r.URL.Path == "/within":
		http.Redirect(w, r, "/private/report", http.StatusFound)
		return
	case r.URL.Path == "/up" && r.TLS == nil:
		http.Redirect(w, r, "https://127.0.0.1/private/report", http.StatusFound)
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	by := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	if r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
		by = r.TLS.PeerCertificates[0].Subject.CommonName
	}
	t.reports = append(t.reports, by)
	w.Header().Set("ETag", `"v1"`)
	if r.Header.Get("If-None-Match") != "" {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	w.WriteHeader(t.status)
	_, _ = io.WriteString(w, "report for <"+by+">")
}

// reported returns the reports since the last call.
func (t *tenants) reported() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	reports := t.reports
	t.reports = nil
	return reports
}

func (t *tenants) answersWith(status int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.status = status
}

// ask publishes the signed want of a namespace.
func (t *tenants) ask(namespace, path string, change ...func(*v1.Want)) {
	GinkgoHelper()
	want := t.want("http://127.0.0.1"+path, append(change, in(namespace))...)
	t.signer.Sign(want)
	t.publish(want)
}

// bodies returns the last body of each namespace.
func (t *tenants) bodies() map[string]string {
	bodies := map[string]string{}
	for _, r := range t.results() {
		if r.GetContent() != nil {
			bodies[r.GetWant().GetNamespace()] = string(r.GetContent().GetBody())
		}
	}
	return bodies
}

// newTenants starts a server for http and https at 127.0.0.1, a proxy that stands in for ports 80
// and 443, and a fetcher with a header file.
func newTenants(trusted bool, headers string, files map[string]string) *tenants {
	GinkgoHelper()
	t := &tenants{world: newWorld(natstest.Options{}, pipeline.Topology{}), status: http.StatusOK}
	secure := httptest.NewUnstartedServer(http.HandlerFunc(t.answer))
	secure.TLS = &tls.Config{ClientAuth: tls.RequestClientCert, MinVersion: tls.VersionTLS12}
	secure.StartTLS()
	DeferCleanup(secure.Close)
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodConnect {
			tunnel(w, secure.Listener.Addr().String())
			return
		}
		t.answer(w, r)
	}))
	DeferCleanup(proxy.Close)
	seed, keys, err := signature.WriteFiles(GinkgoT().TempDir())
	Expect(err).NotTo(HaveOccurred())
	t.signer = must(signature.LoadSigner(seed))
	t.fetcher = t.world.fetcher(func(o *fetcherOptions) {
		o.get.Proxy, o.get.HeaderFile = proxy.URL, writeFile("headers.yaml", []byte(headers))
		o.get.TeamFile = filepath.Join(filepath.Dir(o.get.HeaderFile), "team.json")
		for name, content := range files {
			Expect(os.WriteFile(filepath.Join(filepath.Dir(o.get.HeaderFile), name), []byte(content), 0o600)).To(Succeed())
		}
		o.get.CABundle = writeFile("ca.pem",
			pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: secure.Certificate().Raw}))
		if trusted {
			o.signatures = must(signature.LoadVerifier(keys))
		}
	})
	return t
}

// tunnel connects the client of a proxy with an address until either hangs up.
func tunnel(w http.ResponseWriter, addr string) {
	server, err := net.Dial("tcp", addr)
	if err != nil {
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	client, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		_ = server.Close()
		return
	}
	_, _ = io.WriteString(client, "HTTP/1.1 200 OK\r\n\r\n")
	go func() { _, _ = io.Copy(server, client); _ = server.Close() }()
	_, _ = io.Copy(client, server)
	_ = client.Close()
}

// certificate returns a client certificate and its key.
func certificate(name string) (crt, key string) {
	GinkgoHelper()
	public, private, err := ed25519.GenerateKey(nil)
	Expect(err).NotTo(HaveOccurred())
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour),
	}
	der := must(x509.CreateCertificate(nil, template, template, public, private))
	secret := must(x509.MarshalPKCS8PrivateKey(private))
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})),
		string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}))
}

func report(by string) string { return "report for <" + by + ">" }

var _ = Describe("Namespaces with the same URL", func() {
	// entry is a header file entry for the target of a redirect.
	entry := func(kind, path, namespace, token string) string {
		scheme := "http"
		if path == "/up" {
			scheme = "https"
		}
		return fmt.Sprintf("- {host: 127.0.0.1, schemes: [%s], pathPrefix: /private, namespaces: [%q], %s}\n",
			scheme, namespace, map[string]string{
				"header": "headers: {Authorization: " + token + "}",
				"token":  "bearerFile: " + token,
				"oauth": fmt.Sprintf("oauth2: {tokenURL: \"https://127.0.0.1/token\", clientID: %[1]s, clientSecretFile: %[1]s}",
					token),
				"certificate": fmt.Sprintf("clientCertificate: {certFile: %[1]s.crt, keyFile: %[1]s.key}", token),
			}[kind])
	}
	for _, c := range []struct {
		kind, path string
		trusted    bool
	}{
		{"header", "/within", true},
		{"header", "/up", true},
		{"header", "/within", false},
		{"header", "/up", false},
		{"token", "/within", true},
		{"token", "/up", true},
		// These are for https only.
		{"certificate", "/up", true},
		{"oauth", "/up", true},
		{"team", "/up", true},
	} {
		for _, own := range [][]string{{"token-a", "token-b"}, {"token-a", ""}, {"", "token-b"}} {
			Context(fmt.Sprintf("redirected %s, with a %s each of %q, trusted keys %t", c.path, c.kind, own, c.trusted), func() {
				namespaces := []string{"team-a", "team-b"}
				bodies := map[string]string{"team-a": report(own[0]), "team-b": report(own[1])}
				var t *tenants
				BeforeEach(func() {
					headers, files, team := "", map[string]string{}, []headerfile.Entry{}
					for i, token := range own {
						switch {
						case token == "":
						case c.kind == "team":
							team = append(team, headerfile.Entry{
								Namespaces: namespaces[i : i+1], Source: "rules", Host: "127.0.0.1", Ports: []int{443}, PathPrefix: "/private",
								Headers: map[string]string{"Authorization": token},
							})
						default:
							headers += entry(c.kind, c.path, namespaces[i], token)
							files[token] = token
							files[token+".crt"], files[token+".key"] = certificate(token)
						}
					}
					files["team.json"] = string(must(json.Marshal(team)))
					t = newTenants(c.trusted, cmp.Or(headers, "[]"), files)
				})

				It("get what their own credentials fetch: a body, 304, and failures", func() {
					// visit makes the fetcher handle the message of each namespace.
					visit := func(message func(namespace string)) {
						GinkgoHelper()
						for _, namespace := range namespaces {
							message(namespace)
							t.step()
						}
						Expect(t.reported()).To(Equal(own))
					}
					due := func(namespace string) *v1.Due {
						return t.timerOf(pipeline.Key{Namespace: namespace, Name: key.Name, Key: key.Key}).Due
					}
					visit(func(namespace string) { t.ask(namespace, c.path, every(time.Hour)) })
					Expect(t.bodies()).To(Equal(bodies))
					Expect(t.takeResults()).To(HaveLen(2))
					By("refreshing")
					t.clock.Advance(time.Hour)
					visit(func(namespace string) { t.fire(due(namespace)) })
					Expect(t.results()).To(BeEmpty())
					By("failing, soon and for good")
					t.answersWith(http.StatusInternalServerError)
					visit(func(namespace string) { t.ask(namespace, c.path) })
					t.clock.Advance(time.Minute)
					t.answersWith(http.StatusNotFound)
					visit(func(namespace string) {
						Expect(due(namespace).GetCause()).To(Equal(v1.Cause_CAUSE_RETRY))
						t.fire(due(namespace))
					})
					snippets := map[string]string{}
					for _, d := range t.deadLetters() {
						snippets[d.GetWant().GetNamespace()] = string(d.GetSnippet())
					}
					Expect(snippets).To(Equal(bodies))
				})
			})
		}
	}

	DescribeTable("share a GET if they may send the same credentials, or none", func(kind string) {
		t := newTenants(true, entry(kind, "/within", "team-*", "token"), map[string]string{"token": "token"})
		for _, namespace := range []string{"team-a", "team-b", "other", "another"} {
			t.ask(namespace, "/within")
			t.step()
		}
		Expect(t.reported()).To(Equal([]string{"token", ""}))
		Expect(t.bodies()).To(Equal(map[string]string{
			"team-a": report("token"), "team-b": report("token"), "other": report(""), "another": report(""),
		}))
	},
		Entry("a header", "header"),
		Entry("a token", "token"),
		Entry("a token of OAuth 2.0", "oauth"),
	)
})

var _ = Describe("Objects with the same URL", func() {
	var w *world
	BeforeEach(func() { w = newWorld(natstest.Options{}, pipeline.Topology{}) })

	It("do not share an earlier GET with a fetch on demand, for a lost body, or for another digest", func() {
		o := serve(says("hello there"))
		f := w.fetcher(func(o *fetcherOptions) { o.clock, o.config.Sharing.Window = clockOf(time.Now), time.Minute })
		for i, c := range []struct {
			change func(*v1.Want)
			gets   int
		}{
			{func(*v1.Want) {}, 1},
			{func(w *v1.Want) { w.Cause = v1.Cause_CAUSE_NOW }, 2},
			{func(*v1.Want) {}, 2},
			{func(w *v1.Want) { w.Sha256 = digest("hello there") }, 2},
			{func(w *v1.Want) { w.Sha256 = digest("hello again") }, 3},
			{func(w *v1.Want) { w.Cause = v1.Cause_CAUSE_AUDIT }, 4}, // the body was lost before it was written
			{func(w *v1.Want) { w.Cause = v1.Cause_CAUSE_DRIFT }, 5},
		} {
			f.fetch(w.want(o.URL, named("cm", i), c.change))
			Expect(o.gets.Load()).To(BeEquivalentTo(c.gets), "number %d", i)
		}
		want := w.want(o.URL, named("cm", 0))
		w.fire(&v1.Due{Want: want, WantSequence: 1, Cause: v1.Cause_CAUSE_REPLAY})
		f.step()
		Expect(o.gets.Load()).To(BeEquivalentTo(6))
	})

	It("do not share a GET with another validator", func() {
		o := serve(tagged(`"v2"`, "hello there"))
		sum := sha256.Sum256([]byte(o.URL + "/?"))
		f := w.fetcher()
		for i, tag := range []string{"", `"v1"`, `"v2"`} {
			f.fetchDue(w.want(o.URL+"/", named("cm", i), every(time.Hour)), &v1.Due{Cached: &v1.Cached{
				Sha256: digest("old"), Etag: tag, ValidatedBy: hex.EncodeToString(sum[:16]),
				ConditionalUntil: timestamppb.New(w.clock.Now()),
			}})
		}
		Expect(o.gets.Load()).To(BeEquivalentTo(3))
		Expect(w.results()).To(HaveLen(2), "the third response is a 304")
	})

	It("wait for a slow GET at one message per minute, and get its outcome at once", func() {
		const keys = 40
		hanging, _, release := held("hello there")
		f := w.fetcher(func(o *fetcherOptions) { o.limits.Slots = 8 })
		for i := range keys {
			w.publish(w.want(hanging.URL, named("hanging", i)))
		}
		f.run()
		parked := func() int { return f.parked("shared_get") }
		Eventually(parked).Should(Equal(keys - 1))
		Expect(f.inFlight()).To(BeEquivalentTo(1))
		Expect(hanging.gets.Load()).To(BeEquivalentTo(1))
		var last pipeline.Key
		for i := range keys {
			k := pipeline.Key{Namespace: key.Namespace, Name: fmt.Sprintf("hanging-%04d", i), Key: key.Key}
			if t := w.timerOf(k); t != nil {
				Expect(t.GetCause()).To(Equal(v1.Cause_CAUSE_PARKED))
				Expect(t.at.Sub(w.clock.Now())).To(Equal(40*time.Second), "first leases have more jitter")
				last = k
			}
		}
		w.fire(w.timerOf(last).Due)
		Eventually(parked).Should(Equal(keys))
		Expect(w.timerOf(last).at.Sub(w.clock.Now())).To(Equal(57 * time.Second))

		close(release)
		Eventually(w.contents).Should(Equal(keys))
		Expect(hanging.gets.Load()).To(BeEquivalentTo(1))
	})
})
