package egress_test

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/fetcher/internal/egress"
	"github.com/kv8s/curl-me-that/fetcher/internal/egress/dnstest"
	"github.com/kv8s/curl-me-that/proto/suitetest"
)

func TestEgress(t *testing.T) { suitetest.Run(t, "egress") }

var _ = BeforeSuite(suitetest.ExpectNoLeaks)

// public is an address that the default policy permits.
const public = "93.184.216.34"

// errHeld is the error with which the specs stop permitted attempts.
var errHeld = errors.New("held back by the test")

// holder records permitted attempts and stops them.
type holder struct {
	mu   sync.Mutex
	seen []string
}

func (h *holder) refuse(network, address string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.seen = append(h.seen, network+" "+address)
	return errHeld
}

func (h *holder) attempts() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]string(nil), h.seen...)
}

// newGate returns a gate that uses the test's DNS server and stops every attempt.
func newGate(cfg egress.Config, names *dnstest.Server) (*egress.Gate, *holder) {
	GinkgoHelper()
	held := &holder{}
	gate := must(egress.New(cfg, egress.Deps{Resolver: names.Resolver(), Refuse: held.refuse}))
	return gate, held
}

// attempt simulates a fetch up to the first packet. It returns errHeld if the policy permits the
// attempt.
func attempt(ctx context.Context, gate *egress.Gate, raw string) error {
	u, err := egress.ParseURL(raw)
	if err != nil {
		return err
	}
	policy := gate.For("team-a")
	if err := policy.CheckURL(u); err != nil {
		return err
	}
	port := u.Port()
	switch {
	case port != "":
	case u.Scheme == "https":
		port = "443"
	default:
		port = "80"
	}
	conn, err := policy.DialContext(ctx, "tcp", net.JoinHostPort(u.Hostname(), port))
	if err == nil {
		_ = conn.Close()
	}
	return err
}

// canary listens on loopback and must not get a connection.
type canary struct {
	listener net.Listener
	visits   chan net.Addr
}

func startCanary() *canary {
	GinkgoHelper()
	listener := must(net.Listen("tcp", "127.0.0.1:0"))
	c := &canary{listener: listener, visits: make(chan net.Addr, 16)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			c.visits <- conn.RemoteAddr()
			_ = conn.Close()
		}
	}()
	DeferCleanup(func() {
		_ = listener.Close()
		<-done
	})
	return c
}

func (c *canary) port() int { return c.listener.Addr().(*net.TCPAddr).Port }

// expectNobody connects to the canary and expects to be its first visitor, because connections are
// accepted in order.
func (c *canary) expectNobody(ctx context.Context) {
	GinkgoHelper()
	conn := must(new(net.Dialer).DialContext(ctx, "tcp", c.listener.Addr().String()))
	self := conn.LocalAddr().String()
	defer func() { _ = conn.Close() }()
	var first net.Addr
	Eventually(c.visits).Should(Receive(&first))
	Expect(first.String()).To(Equal(self), "somebody was at the canary")
}

func must[T any](value T, err error) T {
	GinkgoHelper()
	Expect(err).NotTo(HaveOccurred())
	return value
}
