package writer_test

import (
	"context"
	"net"
	"os"
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// hole is a network that can swallow all that is sent. Connections from that
// time stay dead when it no longer does, as behind a gateway that has
// forgotten them.
type hole struct {
	mu      sync.Mutex
	open    bool
	current *sync.Map
}

func (h *hole) dial(ctx context.Context, network, address string) (net.Conn, error) {
	h.mu.Lock()
	open, current := h.open, h.current
	h.mu.Unlock()
	if open {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	swallowed := &swallowed{Conn: conn, closed: make(chan struct{})}
	current.Store(swallowed, nil)
	return swallowed, nil
}

// swallow makes all connections dead, and all new ones hang.
func (h *hole) swallow() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.open = true
	h.current.Range(func(conn, _ any) bool {
		conn.(*swallowed).dead.Store("", true)
		return true
	})
}

// heal lets new connections through.
func (h *hole) heal() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.open, h.current = false, &sync.Map{}
}

// swallowed is a connection whose other end may have gone silent.
type swallowed struct {
	net.Conn
	dead   sync.Map
	once   sync.Once
	closed chan struct{}
}

func (s *swallowed) isDead() bool {
	_, dead := s.dead.Load("")
	return dead
}

func (s *swallowed) Read(b []byte) (int, error) {
	n, err := s.Conn.Read(b)
	if !s.isDead() {
		return n, err
	}
	<-s.closed
	return 0, os.ErrClosed
}

func (s *swallowed) Write(b []byte) (int, error) {
	if s.isDead() {
		return len(b), nil
	}
	return s.Conn.Write(b)
}

func (s *swallowed) Close() error {
	s.once.Do(func() { close(s.closed) })
	return s.Conn.Close()
}

var _ = Describe("A network that drops all packets", func() {
	It("uses the API server within seconds after the network has healed, over new connections", func(ctx SpecContext) {
		w := newWorld(ctx)
		network := &hole{current: &sync.Map{}}
		w.cluster.Dial = network.dial
		w.start()
		names := []string{"a", "b", "c", "d"}
		for _, name := range names {
			w.create(asking(name, "mydata="+url))
		}
		w.apply(w.content(w.want(w.get("a"), "mydata", url), "before"))
		network.swallow()
		for _, name := range names {
			w.publish(w.content(w.want(w.get(name), "mydata", url), "after"))
		}
		Eventually(w.health.Ready).Should(BeFalse())
		network.heal()
		w.catchesUp(names, "after")
		By("and not holding up the end")
		network.swallow()
		w.stop()
	})
})
