package watcher_test

import (
	"net"
	"net/url"
	"sync"

	. "github.com/onsi/ginkgo/v2"
	"k8s.io/client-go/rest"
)

// wire is a TCP proxy between a watcher and the API server that can be cut or swallow all data.
type wire struct {
	listener net.Listener
	upstream string

	mu    sync.Mutex
	conns map[net.Conn]*hold
	wg    sync.WaitGroup
}

// hold discards the data of one connection once it is closed.
type hold struct{ closed chan struct{} }

// wired returns a configuration that reaches the API server over a wire.
func wired() (*wire, *rest.Config) {
	GinkgoHelper()
	target := must(url.Parse(cluster.Host))
	listener := must(net.Listen("tcp", "127.0.0.1:0"))
	w := &wire{listener: listener, upstream: target.Host, conns: map[net.Conn]*hold{}}
	w.wg.Go(w.accept)
	DeferCleanup(w.sever)
	config := rest.CopyConfig(cluster)
	config.Host = "https://" + listener.Addr().String()
	config.ServerName = target.Hostname()
	return w, config
}

func (w *wire) accept() {
	for {
		down, err := w.listener.Accept()
		if err != nil {
			return
		}
		if !w.connect(down) {
			_ = down.Close()
		}
	}
}

func (w *wire) connect(down net.Conn) bool {
	up, err := net.Dial("tcp", w.upstream)
	if err != nil {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	h := &hold{closed: make(chan struct{})}
	w.conns[down], w.conns[up] = h, h
	w.wg.Go(func() { w.pass(down, up, h) })
	w.wg.Go(func() { w.pass(up, down, h) })
	return true
}

// pass copies in one direction until either side ends.
func (w *wire) pass(from, to net.Conn, h *hold) {
	defer func() {
		_, _ = from.Close(), to.Close()
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.conns, from)
		delete(w.conns, to)
	}()
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		select {
		case <-h.closed: // swallowed
		default:
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// sever closes all connections, and refuses new ones until mend.
func (w *wire) sever() {
	_ = w.listener.Close()
	w.mu.Lock()
	for conn := range w.conns {
		_ = conn.Close()
	}
	w.mu.Unlock()
	w.wg.Wait()
}

func (w *wire) mend() {
	GinkgoHelper()
	listener := must(net.Listen("tcp", w.listener.Addr().String()))
	w.listener = listener
	w.wg.Go(w.accept)
}

// silence discards data on the present connections, which stay open. New ones work.
func (w *wire) silence() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, h := range w.conns {
		select {
		case <-h.closed:
		default:
			close(h.closed)
		}
	}
}
