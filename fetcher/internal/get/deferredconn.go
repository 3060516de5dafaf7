package get

import (
	"net"
	"sync"
	"sync/atomic"
)

// deferredConn is a connection on which nothing is read before something was
// written. http.Transport reads ahead of its request, and what a server sends
// unasked it would print to the log of the process.
//
// It remembers its end, too: an answer that stops in the middle of a line looks
// to the parser like one that was never right.
type deferredConn struct {
	net.Conn
	once    sync.Once
	written chan struct{}
	ended   atomic.Bool
}

func newDeferredConn(conn net.Conn) *deferredConn {
	return &deferredConn{Conn: conn, written: make(chan struct{})}
}

func (p *deferredConn) Read(b []byte) (int, error) {
	<-p.written
	n, err := p.Conn.Read(b)
	if err != nil {
		p.ended.Store(true)
	}
	return n, err
}

func (p *deferredConn) Write(b []byte) (int, error) {
	p.release()
	return p.Conn.Write(b)
}

func (p *deferredConn) Close() error {
	err := p.Conn.Close()
	p.release()
	return err
}

// release lets reads begin.
func (p *deferredConn) release() { p.once.Do(func() { close(p.written) }) }
