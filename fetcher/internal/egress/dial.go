package egress

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"
)

// maxAttempts bounds the addresses tried for one dial: a name with thousands
// of them would make the fetcher dial thousands of addresses.
const maxAttempts = 16

// dialling is how connections are made, the same for all policies.
type dialling struct {
	resolver *net.Resolver
	timeout  time.Duration
	refuse   func(network, address string) error
}

// DialContext connects to addr ("host:port", the host as written in a URL) and
// has every address checked before the first packet. It is made for
// http.Transport. The error is a *DeniedError if the policy refused every address.
func (p *Policy) DialContext(ctx context.Context, network, addr string) (net.Conn, error) {
	t, err := p.parseAddr(addr)
	if err != nil {
		return nil, err
	}
	if t.addr.IsValid() {
		return p.dial(ctx, network, t, t.name)
	}
	conn, err := p.dial(ctx, network, t, t.name+".")
	if p.mayUseSearchList(err) {
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
	return p.admit(h, port)
}

// mayUseSearchList reports whether a lookup failed in a way that makes it worth
// asking for the name within the cluster.
func (p *Policy) mayUseSearchList(err error) bool {
	var failure *net.DNSError
	return len(p.allow) > 0 && errors.As(err, &failure) && failure.IsNotFound
}

func (p *Policy) dial(ctx context.Context, network string, t target, name string) (net.Conn, error) {
	watch := &watch{policy: p, target: t}
	dialer := net.Dialer{
		Timeout:  p.dialling.timeout,
		Resolver: p.dialling.resolver,
		Control:  watch.control,
	}
	conn, err := dialer.DialContext(ctx, network, net.JoinHostPort(name, fmt.Sprint(t.port)))
	if err != nil {
		return nil, watch.explain(err)
	}
	return conn, nil
}

// watch decides about the attempts of one dial; the attempts of the two address
// families run beside each other (RFC 8305).
type watch struct {
	policy *Policy
	target target

	mu        sync.Mutex
	permitted int
	denied    error
}

// control is net.Dialer.Control: it runs after the socket is made and before
// it connects.
func (w *watch) control(network, address string, _ syscall.RawConn) error {
	err := w.decide(address)
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case err != nil:
		w.denied = err
		return err
	case w.permitted == maxAttempts:
		return errors.New("host has too many addresses")
	}
	w.permitted++
	if w.policy.dialling.refuse != nil {
		return w.policy.dialling.refuse(network, address)
	}
	return nil
}

func (w *watch) decide(address string) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil || at.Port() != w.target.port {
		return &DeniedError{Rule: RuleAddress}
	}
	return w.policy.address(w.target, at.Addr())
}

// explain chooses the error of a failed dial: net.Dialer returns that of the
// first attempt, which may be a refusal although others failed otherwise.
func (w *watch) explain(err error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.denied == nil:
		return err
	case w.permitted == 0:
		return w.denied
	case errors.Is(err, ErrDenied):
		return ErrUnreachable
	}
	return err
}
