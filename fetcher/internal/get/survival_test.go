package get_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"net"
	"net/http"
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/sync/errgroup"

	"github.com/kv8s/curl-me-that/fetcher/internal/egress"
	"github.com/kv8s/curl-me-that/fetcher/internal/get"
)

// check compares the outcome of one GET with the expectation.
func (h hostile) check(response get.Response, err error) error {
	if h.class == well {
		digest := sha256.Sum256([]byte(h.body))
		switch {
		case err != nil:
			return fmt.Errorf("%s: %w (%w)", h.name, err, errors.Unwrap(err))
		case response.NotModified || string(response.Body) != h.body:
			return fmt.Errorf("%s: gave %d bytes", h.name, len(response.Body))
		case response.SHA256 != hex.EncodeToString(digest[:]):
			return fmt.Errorf("%s: has digest %s", h.name, response.SHA256)
		}
		return nil
	}
	var failure *get.Error
	if !errors.As(err, &failure) {
		return fmt.Errorf("%s: gave %w", h.name, err)
	}
	if failure.Class != h.class || failure.StatusCode != h.status || failure.Host != host {
		return fmt.Errorf("%s: gave %s, status %d, host %q: %w (%w)",
			h.name, failure.Class, failure.StatusCode, failure.Host, err, failure.Unwrap())
	}
	return nil
}

var _ = Describe("the client", func() {
	for _, h := range hostileServers() {
		It("survives "+h.name, func(ctx SpecContext) {
			client := newClient(shortLimits(), newGate(egress.Config{}), get.Deps{})
			port := serve(h.handle)

			start := time.Now()
			response, err := client.Do(ctx, get.Request{URL: urlOf(port, "/path?query="+secret)})

			Expect(h.check(response, err)).To(Succeed())
			Expect(time.Since(start)).To(BeNumerically("<", 10*time.Second))
			if err != nil {
				Expect(err.Error()).To(MatchRegexp(`^[ A-Za-z0-9:,/()-]*\bdata\.example\.com\b[ A-Za-z0-9:,./;()-]*$`))
				Expect(err.Error()).NotTo(ContainSubstring(secret))
				Expect(err.Error()).NotTo(ContainSubstring("127.0.0"))
				Expect(err.Error()).NotTo(ContainSubstring(fmt.Sprint(port)))
			}
			if h.class == badStatus {
				failure := new(get.Error)
				Expect(errors.As(err, &failure)).To(BeTrue())
				Expect(len(failure.Snippet)).To(BeNumerically("<=", get.MaxSnippet))
				Expect(failure.RetryAfter).To(Or(BeZero(), Equal(time.Duration(math.MaxInt64))))
			}
		})
	}

	DescribeTable("waits for a hostile server no longer than for headers:",
		func(ctx SpecContext, handle func(context.Context, net.Conn)) {
			cfg := get.Defaults()
			cfg.HeaderTimeout = 200 * time.Millisecond
			client := newClient(cfg, newGate(egress.Config{}), get.Deps{})

			start := time.Now()
			_, err := client.Do(ctx, get.Request{URL: urlOf(serve(handle), "/")})

			Expect(err).To(HaveOccurred())
			Expect(time.Since(start)).To(BeNumerically("<", cfg.Timeout/2))
		},
		Entry("silence instead of headers", sayAndHold("")),
		Entry("silence instead of the body of an error", sayAndHold("HTTP/1.1 500 No\r\n"+length(100))),
	)

	It("survives 32 concurrent hostile servers within 64 MiB of heap", func(ctx SpecContext) {
		defer debug.SetMemoryLimit(debug.SetMemoryLimit(64 << 20))
		// With so many connections on a busy machine, a slow server must not count as a silent
		// one.
		cfg := shortLimits()
		cfg.Timeout, cfg.HeaderTimeout = 6*time.Second, 4*time.Second
		client := newClient(cfg, newGate(egress.Config{}), get.Deps{})
		servers := hostileServers()
		ports := make([]int, len(servers))
		for i, h := range servers {
			ports[i] = serve(h.handle)
		}
		peak := watchHeap()

		var all errgroup.Group
		all.SetLimit(32)
		for range 3 {
			for i, h := range servers {
				all.Go(func() error {
					return h.check(client.Do(ctx, get.Request{URL: urlOf(ports[i], "/")}))
				})
			}
		}

		Expect(all.Wait()).To(Succeed())
		AddReportEntry("peak of heap in MiB", peak()>>20)
		Expect(peak()).To(BeNumerically("<", 64<<20))
	})

	It("survives 32 concurrent bodies of 1,000,000 bytes within 64 MiB of heap", func(ctx SpecContext) {
		defer debug.SetMemoryLimit(debug.SetMemoryLimit(64 << 20))
		cfg := get.Defaults()
		client := newClient(cfg, newGate(egress.Config{}), get.Deps{})
		words := make([]byte, 10_000)
		port := serveHTTP(func(w http.ResponseWriter, _ *http.Request) {
			for range 100 {
				_, _ = w.Write(words)
			}
		})
		peak := watchHeap()

		var all errgroup.Group
		for range 32 {
			all.Go(func() error {
				for range 4 {
					response, err := client.Do(ctx, get.Request{URL: urlOf(port, "/")})
					if err != nil || len(response.Body) != 1_000_000 {
						return fmt.Errorf("got %d bytes: %w", len(response.Body), err)
					}
				}
				return nil
			})
		}

		Expect(all.Wait()).To(Succeed())
		AddReportEntry("peak of heap in MiB", peak()>>20)
		Expect(peak()).To(BeNumerically("<", 64<<20))
	})
})

// watchHeap samples the heap size, including objects that are not yet swept, until the returned
// function is called.
func watchHeap() (peak func() uint64) {
	quit, done := make(chan struct{}), make(chan uint64)
	go func() {
		beat := time.NewTicker(2 * time.Millisecond)
		defer beat.Stop()
		sample, most := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}, uint64(0)
		for {
			select {
			case <-quit:
				done <- most
				return
			case <-beat.C:
				metrics.Read(sample)
				most = max(most, sample[0].Value.Uint64())
			}
		}
	}()
	peak = sync.OnceValue(func() uint64 { close(quit); return <-done })
	DeferCleanup(func() { peak() })
	return peak
}
