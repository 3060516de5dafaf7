package egress_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	"github.com/kv8s/curl-me-that/fetcher/internal/egress"
)

func TestEgress(t *testing.T) { suitetest.Run(t, "egress") }

var _ = BeforeSuite(suitetest.ExpectNoLeaks)

// public is an address that the default policy permits.
const public = "93.184.216.34"

// errHeld is the error with which the specs stop permitted attempts.
var errHeld = errors.New("withheld by the test")

// holder records permitted attempts and stops them.
type holder struct {
	mu   sync.Mutex
	seen []string
}

func (h *holder) deny(network, address string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.seen = append(h.seen, network+" "+address)
	return errHeld
}

func (h *holder) attempts() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.seen)
}

// names is the DNS server of the current spec.
var names *suitetest.DNS

var _ = BeforeEach(func() { names = suitetest.NewDNS() })

// newGate returns a gate that stops every attempt.
func newGate(cfg egress.Config) (*egress.Gate, *holder) {
	GinkgoHelper()
	held, gate := &holder{}, suitetest.Must(egress.New(cfg, egress.Deps{Resolver: names.Resolver()}))
	gate.Deny(held.deny)
	return gate, held
}

// attempt simulates a fetch up to the first packet. It returns errHeld if the policy permits the attempt.
func attempt(ctx context.Context, gate *egress.Gate, raw string) error {
	u, err := egress.ParseURL(raw)
	if err != nil {
		return err
	}
	policy := gate.For("team-a")
	if err := policy.CheckURL(u); err != nil {
		return err
	}
	conn, err := policy.DialContext(ctx, "tcp", net.JoinHostPort(u.Hostname(), egress.Port(u)))
	if err == nil {
		_ = conn.Close()
	}
	return err
}

// verdict returns the error of a dry run.
func verdict(ctx context.Context, gate *egress.Gate, raw string) error {
	_, err := gate.Preview(ctx, "team-a", raw)
	return err
}

// canary listens on loopback and must not get a connection.
type canary struct {
	*net.TCPAddr
	visits chan string
}

// expectNoVisitor connects to the canary and expects to be its first visitor.
func (c canary) expectNoVisitor(ctx context.Context) {
	GinkgoHelper()
	conn := suitetest.Must(new(net.Dialer).DialContext(ctx, "tcp", c.String()))
	defer func() { _ = conn.Close() }()
	Eventually(c.visits).Should(Receive(Equal(conn.LocalAddr().String())), "the canary had another visitor")
}

func startCanary() canary {
	GinkgoHelper()
	listener := suitetest.Must(net.Listen("tcp", "127.0.0.1:0"))
	c := canary{listener.Addr().(*net.TCPAddr), make(chan string, 16)}
	note := func(conn net.Conn, state http.ConnState) {
		if state == http.StateNew { // in the order of the connections
			c.visits <- conn.RemoteAddr().String()
		}
	}
	server := &httptest.Server{Listener: listener, Config: &http.Server{ConnState: note}}
	server.Start()
	DeferCleanup(server.Close)
	return c
}
