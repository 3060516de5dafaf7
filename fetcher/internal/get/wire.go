package get

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
)

// wire is a connection below TLS, if there is TLS.
type wire struct {
	net.Conn
	ended bool
	// err is the error that ended the response, which the parser reports as a malformed one.
	err error
}

// Read never returns data together with an error: the data may be the close_notify of TLS.
func (w *wire) Read(b []byte) (int, error) {
	n, err := w.Conn.Read(b)
	if n > 0 {
		return n, nil
	}
	w.ended, w.err = err != nil, err
	return 0, err
}

// sealed is a TLS connection that ends properly only with close_notify (RFC 9112 section 9.8). Without
// it, crypto/tls reports io.EOF just the same, and anybody on the path could shorten a body.
type sealed struct {
	*tls.Conn
	wire *wire
}

func (s *sealed) Read(b []byte) (int, error) {
	n, err := s.Conn.Read(b)
	if errors.Is(err, io.EOF) && s.wire.ended {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		s.wire.err = err
	}
	return n, err
}
