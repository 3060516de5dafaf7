package egress

import (
	"context"
	"errors"
	"net"
	"time"
)

// abortingResolver returns a pure Go resolver, because the C library accepts 127.1 and 0x7f000001
// as addresses. It aborts a query that no caller waits for. net.Resolver would keep listening for
// seconds, which a tenant with a silent name server could exploit.
func abortingResolver(r *net.Resolver) *net.Resolver {
	dial := new(net.Dialer).DialContext
	if r != nil && r.Dial != nil {
		dial = r.Dial
	}
	return &net.Resolver{
		PreferGo: true,
		Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := dial(ctx, network, address)
			if err != nil {
				return nil, err
			}
			context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
			if _, isPacket := conn.(net.PacketConn); isPacket { // an answer of 1,232 bytes
				return conn, nil
			}
			return &shortAnswer{conn, maxAnswer}, nil
		},
	}
}

// maxAnswer is the maximum size of an answer in bytes, enough for 200 addresses. A dial takes 45 µs of CPU for each
// address, tried or not, and a name server can send 4,000.
const maxAnswer = 4 << 10

// shortAnswer is a connection to a name server with the number of bytes that may still come.
type shortAnswer struct {
	net.Conn

	left int
}

func (s *shortAnswer) Read(b []byte) (int, error) {
	if s.left == 0 {
		return 0, &net.OpError{Op: "read", Net: "tcp", Err: errors.New("DNS answer is too long")}
	}
	n, err := s.Conn.Read(b[:min(len(b), s.left)])
	s.left -= n
	return n, err
}
