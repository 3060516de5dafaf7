package writer_test

import (
	"context"
	"net"
	"os"
	"sync"
	"sync/atomic"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// hole is a network that can drop all packets. Existing connections stay dead afterwards, as behind
// a gateway that has forgotten them.
type hole struct {
	mu    sync.Mutex
	open  bool
	conns []*swallowed
}

func (h *hole) dial(ctx context.Context, network, address string) (net.Conn, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.open {
		h.mu.Unlock()
		<-ctx.Done()
		h.mu.Lock()
		return nil, ctx.Err()
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	h.conns = append(h.conns, &swallowed{Conn: conn, closed: make(chan struct{})})
	return h.conns[len(h.conns)-1], nil
}

// set opens or closes the hole. Connections from before stay dead.
func (h *hole) set(open bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.open = open
	for _, conn := range h.conns {
		conn.dead.Store(true)
	}
}

// swallowed is a connection whose peer may be silent.
type swallowed struct {
	net.Conn
	dead   atomic.Bool
	once   sync.Once
	closed chan struct{}
}

func (s *swallowed) Read(b []byte) (int, error) {
	n, err := s.Conn.Read(b)
	if !s.dead.Load() {
		return n, err
	}
	<-s.closed
	return 0, os.ErrClosed
}

func (s *swallowed) Write(b []byte) (int, error) {
	if s.dead.Load() {
		return len(b), nil
	}
	return s.Conn.Write(b)
}

func (s *swallowed) Close() error {
	s.once.Do(func() { close(s.closed) })
	return s.Conn.Close()
}

var _ = Describe("A network that drops all packets", func() {
	It("is left over new connections within seconds of its recovery", func(ctx SpecContext) {
		w := newWorld(ctx)
		network := new(hole)
		w.cluster.Dial = network.dial
		w.start()
		names := []string{"a", "b", "c", "d"}
		for _, name := range names {
			w.create(asking(name, "mydata="+url))
		}
		w.apply(w.content(w.want(w.get("a"), "mydata", url), "before"))
		network.set(true)
		for _, name := range names {
			w.publish(w.content(w.want(w.get(name), "mydata", url), "after"))
		}
		Eventually(w.health.Ready).Should(BeFalse())
		network.set(false)
		w.catchesUp(names, "after")
		By("without a delay of the shutdown")
		network.set(true)
		w.stop()
	})
})
