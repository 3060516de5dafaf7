package egress

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
)

// Verdict is the outcome of a dry run.
type Verdict struct {
	// Allowed reports whether a connection may be opened.
	Allowed bool
	// Reason is one sentence, without an address.
	Reason string
	// Err is nil if allowed, a *DeniedError, or the error of the resolver.
	Err error
	// Addresses are the addresses of the host, each with its own verdict. Only the operator may see
	// them.
	Addresses []AddressVerdict
}

// AddressVerdict is the verdict on one address.
type AddressVerdict struct {
	// Addr is the address.
	Addr netip.Addr
	// Err is nil if the address may be dialled, else a *DeniedError.
	Err error
}

func (p *Policy) verdict(ctx context.Context, u *url.URL) Verdict {
	t, err := p.target(u)
	if err != nil {
		return refusal(err)
	}
	if t.addr.IsValid() {
		return Verdict{Allowed: true, Reason: "the address is permitted", Addresses: []AddressVerdict{{Addr: t.addr}}}
	}
	if p.proxyResolves && !p.IsDirect(t.name) {
		if err := denied(t.denials); err != nil {
			return refusal(err)
		}
		const reason = "the name is permitted, and the egress proxy resolves it and checks its addresses"
		return Verdict{Allowed: true, Reason: reason}
	}
	addrs, err := p.lookup(ctx, t.name)
	if err != nil {
		return Verdict{Err: err, Reason: fmt.Sprintf("%s does not resolve", t.name)}
	}
	return p.decide(t, addrs)
}

// IsDirect reports whether a host is reached without the egress proxy, if there is one.
func (p *Policy) IsDirect(host string) bool { return matchesAny(p.directHosts, host) }

// Admit checks a URL and all its addresses for a party that connects on our behalf, such as an
// egress proxy. All addresses must be permitted, because that party may choose any of them.
func (p *Policy) Admit(ctx context.Context, u *url.URL) error {
	v := p.verdict(ctx, u)
	for _, address := range v.Addresses {
		if address.Err != nil {
			return address.Err
		}
	}
	return v.Err
}

// decide returns the verdict on a target with these addresses.
func (p *Policy) decide(t target, addrs []netip.Addr) Verdict {
	var v Verdict
	var refused error
	permitted := 0
	for _, addr := range addrs {
		err := p.address(t, addr)
		if err == nil {
			permitted++
		} else {
			refused = err
		}
		v.Addresses = append(v.Addresses, AddressVerdict{Addr: addr.Unmap(), Err: err})
	}
	switch {
	case permitted == 0:
		v.Err = refused
		v.Reason = refused.Error()
	case permitted < len(addrs):
		v.Allowed = true
		v.Reason = fmt.Sprintf("%d of %d addresses of %s are permitted, the others are skipped", permitted, len(addrs),
			t.name)
	default:
		v.Allowed = true
		v.Reason = fmt.Sprintf("all addresses of %s are permitted", t.name)
	}
	return v
}

func (p *Policy) lookup(ctx context.Context, name string) ([]netip.Addr, error) {
	ctx, cancel := context.WithTimeout(ctx, p.dialling.timeout)
	defer cancel()
	addrs, err := p.dialling.resolver.LookupNetIP(ctx, "ip", p.firstName(name))
	if p.mayUseSearchList(err) {
		addrs, err = p.dialling.resolver.LookupNetIP(ctx, "ip", name)
	}
	if err == nil && len(addrs) == 0 {
		return nil, errors.New("look up host: no addresses")
	}
	return addrs, err
}

func refusal(err error) Verdict { return Verdict{Err: err, Reason: err.Error()} }
