package get_test

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	"github.com/kv8s/curl-me-that/fetcher/internal/get"
	"github.com/kv8s/curl-me-that/proto/failure"
)

// authority issues the certificates of a spec.
type authority struct {
	key         *ecdsa.PrivateKey
	certificate *x509.Certificate
}

func (a *authority) pem() string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.certificate.Raw}))
}

func (a *authority) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.certificate)
	return pool
}

// issue makes a certificate for a name (empty means none) that is valid until a time.
func (a *authority) issue(name string, until time.Time) tls.Certificate {
	GinkgoHelper()
	key := suitetest.Must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2),
		Subject:      pkix.Name{CommonName: secret},
		NotBefore:    time.Now().Add(-2 * time.Hour),
		NotAfter:     until,
	}
	if name != "" {
		template.DNSNames = []string{name}
	}
	der := suitetest.Must(x509.CreateCertificate(rand.Reader, template, a.certificate, &key.PublicKey, a.key))
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

func newAuthority() *authority {
	GinkgoHelper()
	key := suitetest.Must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: "authority of a spec"},
		NotBefore:             time.Now().Add(-time.Hour),
		NotAfter:              time.Now().Add(time.Hour),
		IsCA:                  true,
		KeyUsage:              x509.KeyUsageCertSign,
		BasicConstraintsValid: true,
	}
	der := suitetest.Must(x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key))
	certificate := suitetest.Must(x509.ParseCertificate(der))
	return &authority{key: key, certificate: certificate}
}

// secured makes a TLS handshake before it passes a connection on.
func secured(cfg *tls.Config, handle func(context.Context, net.Conn)) func(context.Context, net.Conn) {
	return func(ctx context.Context, conn net.Conn) {
		inner := tls.Server(conn, cfg)
		defer func() { _ = inner.Close() }()
		if inner.HandshakeContext(ctx) == nil {
			handle(ctx, inner)
		}
	}
}

// serveRenegotiation responds to one request, after a second handshake. Package tls has no such server. The returned
// function ends the server and returns what it has printed.
func serveRenegotiation(ctx context.Context, ca *authority) (port int, heard func() string) {
	GinkgoHelper()
	openssl, err := exec.LookPath("openssl")
	if err != nil {
		Skip("without openssl")
	}
	certificate, key := pemOf(ca.issue(host, time.Now().Add(time.Hour)))
	command := exec.CommandContext(ctx, openssl, "s_server", "-accept", "127.0.0.1:0", "-tls1_2", "-CAfile", cfg.CABundle,
		"-cert", writeFile("crt", certificate), "-key", writeFile("key", key))
	in, out := suitetest.Must(command.StdinPipe()), suitetest.Must(command.StdoutPipe())
	command.Stderr = command.Stdout
	Expect(command.Start()).To(Succeed())
	ports, said := make(chan int, 1), make(chan string, 1)
	go func() {
		var all strings.Builder
		for lines := bufio.NewScanner(out); lines.Scan(); {
			line := lines.Text()
			all.WriteString(line + "\n")
			_, address, _ := strings.Cut(line, "ACCEPT ")
			switch _, accepted, _ := net.SplitHostPort(address); {
			case accepted != "":
				n, _ := strconv.Atoi(accepted)
				ports <- n
			case strings.HasPrefix(line, "User-Agent:"):
				_, _ = io.WriteString(in, "R\n") // the command for a second handshake
			case line == "Read BLOCK": // after it
				_, _ = io.WriteString(in, ok+length(6)+"hello\n")
			}
		}
		said <- all.String()
	}()
	heard = sync.OnceValue(func() string {
		_ = command.Process.Kill()
		text := <-said
		_ = command.Wait()
		return text
	})
	DeferCleanup(func() { heard() })
	Eventually(ports).WithContext(ctx).Should(Receive(&port))
	return port, heard
}

func httpsURL(port int) string { return "https://" + hostPort(host, port) + "/" }

var _ = Describe("TLS", func() {
	var (
		ca     *authority
		server *tls.Config
		// respond is what the server does after the handshake.
		respond func(context.Context, net.Conn)
	)
	later := func() time.Time { return time.Now().Add(time.Hour) }

	BeforeEach(func() {
		ca = newAuthority()
		cfg.CABundle = writeFile("ca.pem", ca.pem())
		respond = say(ok + length(5) + "hello")
		server = &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{ca.issue(host, later())}}
	})

	failureOf := func(ctx context.Context, handle func(context.Context, net.Conn)) *get.Error {
		GinkgoHelper()
		return errorOf(newClient().Do(ctx, get.Request{URL: httpsURL(serve(handle))}))
	}

	It("never offers HTTP/2, and uses HTTP/1.1 with a server that has both", func(ctx SpecContext) {
		var offered atomic.Value
		server.NextProtos = []string{"h2", "http/1.1"}
		server.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			offered.Store(hello.SupportedProtos)
			return nil, nil
		}
		response := suitetest.Must(newClient().Do(ctx, get.Request{URL: httpsURL(serve(secured(server, respond)))}))
		Expect(string(response.Body)).To(Equal("hello"))
		Expect(offered.Load()).NotTo(ContainElement("h2"))
	})

	const (
		certificate = "TLS handshake with data.example.com failed: the server asked for a client certificate, " +
			"and none is configured for this URL and namespace"
		http2 = "data.example.com does not speak HTTP/1.1, perhaps only HTTP/2; use the URL of a server that does"
	)
	const trust = "the TLS certificate of data.example.com cannot be trusted: "
	DescribeTable("fails with a sentence of our own:",
		func(ctx SpecContext, spoil func(), handle func(context.Context, net.Conn), text string) {
			if spoil != nil {
				spoil()
			}
			if handle == nil {
				handle = secured(server, respond)
			}
			got := failureOf(ctx, handle)
			Expect(got.Class).To(Equal(failure.TLSFailed))
			Expect(got.Error()).To(Equal(text))
		},
		Entry("expired", func() { server.Certificates[0] = ca.issue(host, time.Now().Add(-time.Hour)) }, nil,
			trust+"it has expired or is not yet valid"),
		Entry("wrong host", func() { server.Certificates[0] = ca.issue("other.example.com", later()) }, nil,
			trust+"it was issued for another host name"),
		Entry("self-signed", func() { cfg.CABundle = "" }, nil,
			trust+"it is signed by an unknown authority, or the server does not send its intermediate certificate"),
		Entry("unknown authority, with its certificate", func() {
			cfg.CABundle = ""
			server.Certificates[0].Certificate = append(server.Certificates[0].Certificate, ca.certificate.Raw)
		}, nil, trust+"it is signed by an unknown authority"),
		Entry("common name only", func() { server.Certificates[0] = ca.issue("", later()) }, nil,
			trust+"it has only a common name; have one issued with the host as a subject alternative name"),
		Entry("1.0 only", func() { server.MinVersion, server.MaxVersion = tls.VersionTLS10, tls.VersionTLS10 }, nil,
			"TLS handshake with data.example.com failed: the server rejected it or does not speak TLS"),
		Entry("1.1 only", func() { server.MinVersion, server.MaxVersion = tls.VersionTLS11, tls.VersionTLS11 }, nil,
			"TLS handshake with data.example.com failed: the server rejected it or does not speak TLS"),
		Entry("client certificate required by TLS 1.2", func() {
			server.ClientAuth, server.MaxVersion = tls.RequireAnyClientCert, tls.VersionTLS12
		}, nil, certificate),
		Entry("client certificate required by TLS 1.3", func() {
			server.ClientAuth = tls.RequireAnyClientCert
		}, nil, certificate),
		Entry("client certificate required, without an alert", func() {
			server.ClientAuth, respond = tls.RequestClientCert, say("")
		}, nil, certificate),
		Entry("HTTP/2 only, by an alert", func() { server.NextProtos = []string{"acme-tls/1"} }, nil, http2),
		Entry("plain HTTP", nil, say("HTTP/1.1 400 "+secret+"\r\n\r\n"),
			"data.example.com responded by plain HTTP to an https:// URL; write http:// if that is meant "+
				"(https:// is assumed where no scheme is written)"),
		Entry("closed during the handshake", nil, func(_ context.Context, conn net.Conn) {
			_, _ = io.ReadFull(conn, make([]byte, 5))
		}, "TLS handshake with data.example.com failed: the server rejected it or does not speak TLS"),
	)

	DescribeTable("says that the server asked for a client certificate before it refused the request", func(
		ctx SpecContext, status string,
	) {
		server.ClientAuth = tls.RequestClientCert
		failure := failureOf(ctx, secured(server, say("HTTP/1.1 "+status+" No\r\n"+length(0))))
		Expect(failure).To(MatchError("data.example.com responded with " + status + "; the server asked for a client " +
			"certificate, and none is configured for this URL and namespace"))
	},
		Entry(nil, "400"),
		Entry(nil, "403"),
	)

	It("says that the server does not accept the client certificate", func(ctx SpecContext) {
		server.ClientAuth, server.ClientCAs = tls.RequireAndVerifyClientCert, newAuthority().pool()
		port := serve(secured(server, respond))
		dir := filepath.Dir(cfg.CABundle)
		own, key := pemOf(ca.issue("team-a", later()))
		replace(filepath.Join(dir, "crt"), own)
		replace(filepath.Join(dir, "key"), key)
		cfg.HeaderFile = filepath.Join(dir, "headers.yaml")
		replace(cfg.HeaderFile, fmt.Sprintf("- {host: %s, namespaces: [\"*\"], ports: [%d], "+
			"clientCertificate: {certFile: crt, keyFile: key}}", host, port))
		client := newClient()
		for _, authorities := range []*x509.CertPool{server.ClientCAs, nil} { // without names, it is sent
			server.ClientCAs = authorities
			Expect(errorOf(client.Do(ctx, get.Request{URL: httpsURL(port), Namespace: "team-a"}))).To(MatchError(
				"TLS handshake with data.example.com failed: the server does not accept the client certificate " +
					"for this URL and namespace"))
		}
	})

	DescribeTable("permits one second handshake, in which IIS asks for a client certificate",
		func(ctx SpecContext, certified bool) {
			port, heard := serveRenegotiation(ctx, ca)
			request := get.Request{URL: httpsURL(port), Namespace: "team-a"}
			if certified {
				certificate, key := pemOf(ca.issue("team-a", later()))
				cfg.HeaderFile = writeFile("headers.yaml", fmt.Sprintf("- {host: data.example.com, namespaces: [team-a], "+
					"ports: [%d], clientCertificate: {certFile: crt, keyFile: key}}\n", port))
				replace(filepath.Join(filepath.Dir(cfg.HeaderFile), "crt"), certificate)
				replace(filepath.Join(filepath.Dir(cfg.HeaderFile), "key"), key)
			}
			Expect(newClient().Do(ctx, request)).To(HaveField("Body", BeEquivalentTo("hello\n")))
			Expect(strings.Contains(heard(), "depth=0 CN = "+secret)).To(Equal(certified))
		},
		Entry("and gets none", false),
		Entry("and gets it", true),
	)

	It("aborts a silent handshake after the TLS timeout", func(ctx SpecContext) {
		start := time.Now()
		Expect(failureOf(ctx, hold).Class).To(Equal(failure.Timeout))
		Expect(time.Since(start)).To(BeNumerically("<", cfg.Timeout))
	})

	It("follows a redirect from http to https, but never back", func(ctx SpecContext) {
		secure := serve(secured(server, respond))
		plain := serve(redirectTo(httpsURL(secure)))
		client := newClient()
		response := suitetest.Must(client.Do(ctx, get.Request{URL: urlOf(plain, "/")}))
		Expect(string(response.Body)).To(Equal("hello"))

		got := failureOf(ctx, secured(server, redirectTo(urlOf(plain, "/"))))
		Expect(got.Class).To(Equal(failure.TooManyRedirects))
		Expect(got.Error()).To(Equal("data.example.com redirected from https to http, which is not followed; " +
			"use a URL that stays with https"))
	})

	It("loads a new CA bundle without a restart", func(ctx SpecContext) {
		other := newAuthority()
		cfg.CABundle = writeFile("ca.pem", other.pem())
		client, reload := newReloading(get.Deps{})
		request := get.Request{URL: httpsURL(serve(secured(server, respond)))}
		Expect(client.Do(ctx, request)).Error().To(HaveOccurred())

		replace(cfg.CABundle, "no certificate")
		Expect(reload()).To(MatchError("read " + cfg.CABundle + ": no PEM certificate in it"))
		replace(cfg.CABundle, ca.pem())
		Expect(reload()).To(Succeed())

		Expect(client.Do(ctx, request)).Error().NotTo(HaveOccurred())
	})
})
