package get_test

import (
	"context"
	"io"
	"log"
	"maps"
	"net/http"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"

	"github.com/kv8s/curl-me-that/fetcher/internal/egress"
	"github.com/kv8s/curl-me-that/fetcher/internal/get"
)

// phases counts the observed phases.
type phases struct {
	mu   sync.Mutex
	seen map[get.Phase]int
}

func (p *phases) ObservePhase(_ context.Context, phase get.Phase, took time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if took >= 0 {
		p.seen[phase]++
	}
}

func (p *phases) counts() map[get.Phase]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.seen)
}

var _ = Describe("a client", func() {
	It("observes the duration of each phase", func(ctx SpecContext) {
		heard := &phases{seen: map[get.Phase]int{}}
		ca := newAuthority()
		cfg := shortLimits()
		cfg.CABundle = writeFile("ca.pem", ca.pem())
		client := newClient(cfg, newGate(egress.Config{}), get.Deps{Observe: heard.ObservePhase})
		port := secureServer(ca, host, nil, redirectOr("hello", http.StatusOK))

		Expect(client.Do(ctx, get.Request{URL: httpsURL(port)})).Error().NotTo(HaveOccurred())
		Expect(heard.counts()).To(Equal(map[get.Phase]int{
			get.Phase("dns"): 1, get.Phase("connect"): 1, get.Phase("tls"): 1, get.Phase("first_byte"): 1,
			get.Phase("transfer"): 1, get.Phase("total"): 1,
		}))

		_, err := client.Do(ctx, get.Request{URL: "http://10.0.0.1/"})
		Expect(err).To(HaveOccurred())
		Expect(client.Do(ctx, get.Request{URL: httpsURL(port)})).Error().NotTo(HaveOccurred())
		Expect(heard.counts()).To(Equal(map[get.Phase]int{
			get.Phase("dns"): 2, get.Phase("connect"): 2, get.Phase("tls"): 2, get.Phase("first_byte"): 2,
			get.Phase("transfer"): 2, get.Phase("total"): 3,
		}))
	})

	It("does not log data that a server sends before a request", func(ctx SpecContext) {
		said := gbytes.NewBuffer()
		log.SetOutput(said)
		DeferCleanup(func() { log.SetOutput(io.Discard) })
		client := newClient(shortLimits(), newGate(egress.Config{}), get.Deps{})

		url := urlOf(serve(sendFirst("SSH-2.0-"+secret+"\r\n")), "/")
		Expect(failed(client.Do(ctx, get.Request{URL: url})).Class).To(Equal(badResponse))
		Expect(said.Contents()).To(BeEmpty())
	})

	DescribeTable("rejects an invalid configuration",
		func(spoil func(*get.Config), text string) {
			cfg := get.Defaults()
			spoil(&cfg)
			_, err := get.New(cfg, get.Deps{Gate: newGate(egress.Config{})})
			Expect(err).To(MatchError("set up GET: " + text))
		},
		Entry(nil, func(c *get.Config) { c.Proxy = "http://me:" + secret + "@:x" },
			"proxy must be a URL such as http://proxy.example.com:3128"),
		Entry(nil, func(c *get.Config) { c.Proxy = "socks5://proxy" },
			"proxy must be a URL such as http://proxy.example.com:3128"),
		Entry(nil, func(c *get.Config) { c.CABundle = "/missing" }, "open /missing: no such file or directory"),
		Entry(nil, func(c *get.Config) { c.HeaderFile = "/missing" }, "open /missing: no such file or directory"),
	)
})
