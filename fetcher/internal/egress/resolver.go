package egress

import (
	"context"
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
			if err == nil {
				context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
			}
			return conn, err
		},
	}
}
