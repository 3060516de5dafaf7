package get

import (
	"net"
	"sync"
	"sync/atomic"
)

// deferredConn is a connection that returns no data before the first write. http.Transport reads
// ahead of its request and logs unsolicited data of a server.
//
// It also records the end of the connection, because the parser reports a truncated response as a
// malformed one.
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

// release allows reads.
func (p *deferredConn) release() { p.once.Do(func() { close(p.written) }) }
