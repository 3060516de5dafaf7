package get

import (
	"net"
	"sync"
	"sync/atomic"
)

// patient is a connection on which nothing is read before something was
// written. http.Transport reads ahead of its request, and what a server says
// unasked it would print to the log of the process.
//
// It remembers its end, too: an answer that stops in the middle of a line looks
// to the parser like one that was never right.
type patient struct {
	net.Conn
	once  sync.Once
	asked chan struct{}
	ended atomic.Bool
}

func newPatient(conn net.Conn) *patient {
	return &patient{Conn: conn, asked: make(chan struct{})}
}

func (p *patient) Read(b []byte) (int, error) {
	<-p.asked
	n, err := p.Conn.Read(b)
	if err != nil {
		p.ended.Store(true)
	}
	return n, err
}

func (p *patient) Write(b []byte) (int, error) {
	p.ask()
	return p.Conn.Write(b)
}

func (p *patient) Close() error {
	err := p.Conn.Close()
	p.ask()
	return err
}

func (p *patient) ask() { p.once.Do(func() { close(p.asked) }) }
