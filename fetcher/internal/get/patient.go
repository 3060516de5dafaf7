package get

import (
	"net"
	"sync"
)

// patient is a connection on which nothing is read before something was
// written. http.Transport reads ahead of its request, and what a server says
// unasked it would print to the log of the process.
type patient struct {
	net.Conn
	once  sync.Once
	asked chan struct{}
}

func newPatient(conn net.Conn) *patient {
	return &patient{Conn: conn, asked: make(chan struct{})}
}

func (p *patient) Read(b []byte) (int, error) {
	<-p.asked
	return p.Conn.Read(b)
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
