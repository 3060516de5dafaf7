package get_test

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/sync/errgroup"

	"github.com/kv8s/curl-me-that/fetcher/internal/get"
	"github.com/kv8s/curl-me-that/proto/failure"
)

var _ = Describe("the files of an entry", func() {
	var (
		private *authority
		dir     string
		port    int
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
		private, cfg = newAuthority(), get.Defaults()
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
		client, reload := newReloading(get.Deps{})
		do(ctx, client, in("team-a", "/v1"))
		do(ctx, client, in("team-b", "/v1"))
		do(ctx, client, in("team-a", "/v2"))
		do(ctx, client, in("team-a", "/v1?to=/v2"))
		Expect(names()).To(Equal([]string{"/v1 team-a", "/v1 ", "/v2 ", "/v1 team-a", "/v2 "}))
		By("trusting the authorities nowhere else")
		put("headers.yaml", fmt.Sprintf("- {host: %s, ports: [%d], namespaces: [team-a], caFile: ca.crt}\n", host, port))
		Expect(reload()).To(Succeed())
		do(ctx, client, in("team-a", "/"))
		Expect(errorOf(client.Do(ctx, in("team-b", "/"))).Class).To(Equal(failure.TLSFailed))
	})

	It("are read again when they change, under load, without a failed fetch", func(ctx SpecContext) {
		certify("one")
		put("token", "one\n")
		put("headers.yaml", fmt.Sprintf("- {host: %s, ports: [%d], namespaces: [team-a], bearerFile: token, "+
			"clientCertificate: {certFile: client.crt, keyFile: client.key}, caFile: ca.crt}\n", host, port))
		client, reload := newReloading(get.Deps{})
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
		_, reload := newReloading(get.Deps{})
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
		client := newClient()
		put("token", "two")
		do(ctx, client, get.Request{URL: urlOf(port, "/"), Namespace: "team-a"})
		Expect(names()).To(Equal([]string{"/ Bearer one", "/ Bearer two"}))
	})
})
