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
	// Reason is the cause in one sentence, without an address.
	Reason string
	// Err is nil if allowed, a *DeniedError, or the error of the resolver.
	Err error
	// Addresses are those of the host, each with its own verdict, for the
	// operator alone.
	Addresses []AddressVerdict
}

// AddressVerdict is the verdict over one address.
type AddressVerdict struct {
	// Addr is the address.
	Addr netip.Addr
	// Err is nil if the address may be dialled, else a *DeniedError.
	Err error
}

// Verdict decides about a URL as a fetch would, looks its name up, and connects
// nowhere.
func (p *Policy) Verdict(ctx context.Context, raw string) Verdict {
	u, err := ParseURL(raw)
	if err != nil {
		return refusal(err)
	}
	return p.verdict(ctx, u)
}

func (p *Policy) verdict(ctx context.Context, u *url.URL) Verdict {
	t, err := p.target(u)
	if err != nil {
		return refusal(err)
	}
	if t.addr.IsValid() {
		return Verdict{Allowed: true, Reason: "the address may be reached", Addresses: []AddressVerdict{{Addr: t.addr}}}
	}
	addrs, err := p.lookup(ctx, t.name)
	if err != nil {
		return Verdict{Err: err, Reason: fmt.Sprintf("%s does not resolve", t.name)}
	}
	return p.decide(t, addrs)
}

// Admit decides about a URL with all its addresses for a party that connects in our
// place, such as an egress proxy: as it may choose among the addresses, all of
// them must be permitted.
func (p *Policy) Admit(ctx context.Context, u *url.URL) error {
	v := p.verdict(ctx, u)
	for _, address := range v.Addresses {
		if address.Err != nil {
			return address.Err
		}
	}
	return v.Err
}

// decide returns the verdict over a target with these addresses.
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
		v.Reason = fmt.Sprintf("%d of %d addresses of %s may be reached, the others are skipped", permitted, len(addrs), t.name)
	default:
		v.Allowed = true
		v.Reason = fmt.Sprintf("all addresses of %s may be reached", t.name)
	}
	return v
}

func (p *Policy) lookup(ctx context.Context, name string) ([]netip.Addr, error) {
	ctx, cancel := context.WithTimeout(ctx, p.dialling.timeout)
	defer cancel()
	addrs, err := p.dialling.resolver.LookupNetIP(ctx, "ip", name+".")
	if p.mayUseSearchList(err) {
		addrs, err = p.dialling.resolver.LookupNetIP(ctx, "ip", name)
	}
	if err == nil && len(addrs) == 0 {
		return nil, errors.New("look up host: no addresses")
	}
	return addrs, err
}

func refusal(err error) Verdict { return Verdict{Err: err, Reason: err.Error()} }
