package egress

import (
	"context"
	"net"
	"time"
)

// abortingResolver returns a resolver of Go, never that of the C library, which
// takes 127.1 and 0x7f000001 for addresses. It gives up a query when no caller
// waits for the answer any more; net.Resolver would listen on for seconds,
// which a tenant with a silent name server could make the fetcher do often.
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
