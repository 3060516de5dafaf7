package writer_test

import (
	"context"
	"net"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/proto/pipeline"
)

// hole is a network that can drop all packets. Existing connections stay dead afterwards, as behind
// a gateway that has lost their state.
type hole struct {
	open atomic.Bool
	// changes counts the calls of set.
	changes atomic.Int64
}

func (h *hole) dial(ctx context.Context, network, address string) (net.Conn, error) {
	if h.open.Load() {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	changes := h.changes.Load()
	conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
	return &swallowed{Conn: conn, dead: func() bool { return h.changes.Load() != changes }}, err
}

// set opens or closes the hole. Connections from before stay dead.
func (h *hole) set(open bool) {
	h.open.Store(open)
	h.changes.Add(1)
}

// swallowed is a connection whose peer may be silent.
type swallowed struct {
	net.Conn
	dead func() bool
}

func (s *swallowed) Read(b []byte) (int, error) {
	n, err := s.Conn.Read(b)
	for err == nil && s.dead() {
		n, err = s.Conn.Read(b)
	}
	return n, err
}

func (s *swallowed) Write(b []byte) (int, error) {
	if s.dead() {
		return len(b), nil
	}
	return s.Conn.Write(b)
}

var _ = It("A network outage ends for the writer within seconds, over new connections", func() {
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
	Eventually(w.Health.Ready).Should(BeFalse())
	network.set(false)
	began := time.Now()
	w.acknowledged()
	Expect(time.Since(began)).To(BeNumerically("<", pipeline.AckWait*4/5))
	for _, name := range names {
		Expect(w.get(name).Data).To(HaveKeyWithValue("mydata", "after"))
	}
	Eventually(w.Health.Ready).Should(BeTrue())
	By("shutting down without delay")
	network.set(true)
	w.Stop()
})
