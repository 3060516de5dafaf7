package get_test

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	"github.com/kv8s/curl-me-that/fetcher/internal/egress"
	"github.com/kv8s/curl-me-that/fetcher/internal/get"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
)

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
	der := suitetest.Must(x509.MarshalPKCS8PrivateKey(c.PrivateKey))
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Certificate[0]})),
		string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
}

var _ = Describe("a token of OAuth 2.0", func() {
	var (
		ca       *authority
		ahead    atomic.Int64
		deps     get.Deps
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
		ca, cfg = newAuthority(), get.Defaults()
		began := time.Now()
		deps.Now = func() time.Time { return began.Add(time.Duration(ahead.Load())) }
		asked.Store(0)
		ahead.Store(0)
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
	advance := func(d time.Duration) { ahead.Add(int64(d)) }
	newTokenClient := func() *get.Client { return newClientOf(newGate(egress.Config{}), deps) }

	It("is renewed a minute before it expires, while requests use the old one", func(ctx SpecContext) {
		grant(600)
		client := newTokenClient()
		do := func() {
			GinkgoHelper()
			Expect(client.Do(ctx, request)).Error().NotTo(HaveOccurred())
		}
		do()
		advance(8*time.Minute + 58*time.Second)
		do()
		Expect(asked.Load()).To(BeEquivalentTo(1))
		advance(3 * time.Second)
		do()
		Eventually(func() string { do(); return seen.lastAuthorization() }).Should(Equal("Bearer token-2"))
		Expect(asked.Load()).To(BeEquivalentTo(2))
		By("using the token until it expires if the token URL fails")
		give(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) })
		advance(9*time.Minute + 30*time.Second)
		do()
		advance(time.Minute)
		Expect(errorOf(client.Do(ctx, request)).Class).To(Equal(v1.FailureClass_FAILURE_CLASS_CREDENTIALS_FAILED))
	})

	It("is renewed once after a 401, under load, without a failed fetch", func(ctx SpecContext) {
		grant(3600)
		client := newTokenClient()
		accepted.Store(new("token-1"))
		Expect(client.Do(ctx, request)).Error().NotTo(HaveOccurred())
		advance(time.Minute)
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

	It("is fetched once under load, and renewed with a rotated client secret", func(ctx SpecContext) {
		grant(600)
		client, reload := newReloading(deps)
		load := func() { together(ctx, client, 20, request) }
		load()
		Expect(asked.Load()).To(BeEquivalentTo(1))
		Expect(seen.authorizations()).To(HaveEach("Bearer token-1"))
		replace(filepath.Join(filepath.Dir(cfg.HeaderFile), "api-secret"), "rotated\n")
		password.Store(new("rotated"))
		Expect(reload()).To(Succeed())
		advance(9*time.Minute + 30*time.Second)
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
		cfg.Timeout = 3 * time.Second
		start := time.Now()
		Expect(errorOf(newTokenClient().Do(ctx, request)).Class).To(Equal(v1.FailureClass_FAILURE_CLASS_CREDENTIALS_FAILED))
		Expect(time.Since(start)).To(BeNumerically("<", cfg.Timeout))
	})

	It("is not requested if the policy denies the token URL", func(ctx SpecContext) {
		grant(3600)
		client := newClientOf(newGate(egress.Config{DenyHosts: []string{login}}), deps)
		Expect(errorOf(client.Do(ctx, request)).Class).To(Equal(v1.FailureClass_FAILURE_CLASS_CREDENTIALS_FAILED))
		Expect(asked.Load()).To(BeZero())
	})
})
