package egress

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"syscall"
	"time"
)

// maxAttempts is the maximum number of addresses per dial, because a name may have thousands.
const maxAttempts = 16

// dialling has the settings for connections, which all policies share.
type dialling struct {
	resolver *net.Resolver
	timeout  time.Duration
	// deny, if set, can deny a permitted attempt just before it connects. Only specs do.
	deny func(network, address string) error
}

// DialContext connects to addr ("host:port", the host as written in a URL) and checks every address before the first
// packet. It is a DialContext for http.Transport. The error is a *DeniedError if the policy denied every address.
func (p *Policy) DialContext(ctx context.Context, network, addr string) (net.Conn, error) {
	t, err := p.parseAddr(addr)
	if err != nil {
		return nil, err
	}
	if t.addr.IsValid() {
		return p.dial(ctx, network, t, t.name)
	}
	conn, err := p.dial(ctx, network, t, p.firstName(t.name))
	if p.mayUseSearchList(ctx, t.name, err) {
		return p.dial(ctx, network, t, t.name)
	}
	return conn, err
}

func (p *Policy) parseAddr(addr string) (target, error) {
	name, service, err := net.SplitHostPort(addr)
	if err != nil {
		return target{}, &DeniedError{Rule: RuleHost}
	}
	port, err := portNumber(service)
	if err != nil {
		return target{}, err
	}
	h, err := parseHost(name)
	if err != nil {
		return target{}, err
	}
	return p.checkTarget(h, port)
}

// firstName returns the name to look up first: the absolute name, or a name without a dot as written if names of
// the cluster are allowed. No public host has such a name, and Go finds it in the hosts file only as written.
func (p *Policy) firstName(name string) string {
	if len(p.allow) > 0 && !strings.Contains(name, ".") {
		return name
	}
	return name + "."
}

// mayUseSearchList reports whether to look the name up within the cluster after a failed lookup.
func (p *Policy) mayUseSearchList(ctx context.Context, name string, err error) bool {
	first := p.firstName(name)
	if len(p.allow) == 0 || first == name || !isNotFound(err) { // name itself was looked up there already
		return false
	}
	// Go takes a name for unknown if it has no address of one family and the lookup of the other one failed.
	strict := &net.Resolver{PreferGo: true, StrictErrors: true, Dial: p.dialling.resolver.Dial}
	ctx, cancel := context.WithTimeout(ctx, p.dialling.timeout)
	defer cancel()
	_, err = strict.LookupNetIP(ctx, "ip", first)
	return isNotFound(err)
}

func isNotFound(err error) bool {
	var failure *net.DNSError
	return errors.As(err, &failure) && failure.IsNotFound
}

func (p *Policy) dial(ctx context.Context, network string, t target, name string) (net.Conn, error) {
	check := &dialCheck{policy: p, target: t}
	dialer := net.Dialer{
		Timeout:  p.dialling.timeout,
		Resolver: p.dialling.resolver,
		Control:  check.control,
		// A connection is for one request, which has a time limit. It saves three system calls.
		KeepAlive: -1,
	}
	conn, err := dialer.DialContext(ctx, network, net.JoinHostPort(name, fmt.Sprint(t.port)))
	if err != nil {
		return nil, check.explain(err)
	}
	return conn, nil
}

// dialCheck checks the attempts of one dial. Attempts of the two address families run concurrently (RFC 8305).
type dialCheck struct {
	policy *Policy
	target target

	mu        sync.Mutex
	permitted int
	denied    error
}

// control is net.Dialer.Control: it runs after the socket is created and before it connects.
func (d *dialCheck) control(network, address string, _ syscall.RawConn) error {
	err := d.decide(address)
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case err != nil:
		d.denied = err
		return err
	case d.permitted == maxAttempts:
		return errors.New("host has too many addresses")
	}
	d.permitted++
	if d.policy.dialling.deny != nil {
		return d.policy.dialling.deny(network, address)
	}
	return nil
}

func (d *dialCheck) decide(address string) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil || at.Port() != d.target.port {
		return &DeniedError{Rule: RuleAddress}
	}
	return d.policy.checkAddress(d.target, at.Addr())
}

// explain chooses the error of a failed dial. net.Dialer returns the error of the first attempt,
// which may be a denial although other attempts failed for other reasons.
func (d *dialCheck) explain(err error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.denied == nil:
		return err
	case d.permitted == 0:
		return d.denied
	case errors.Is(err, ErrDenied):
		return ErrUnreachable
	}
	return err
}

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
