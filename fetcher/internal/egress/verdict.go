package egress

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
)

// Verdict checks the URL of a namespace and looks up its name like a fetch, but does not connect. The reason is one
// sentence without an address. The error is nil if the URL is permitted, a *DeniedError, or that of the lookup.
func (g *Gate) Verdict(ctx context.Context, namespace, raw string) (reason string, err error) {
	u, err := ParseURL(raw)
	if err != nil {
		return err.Error(), err
	}
	p := g.For(namespace)
	t, addrs, err := p.resolve(ctx, u)
	permitted := 0
	var denial error
	for _, addr := range addrs {
		if err := p.checkAddress(t, addr); err != nil {
			denial = err
			continue
		}
		permitted++
	}
	switch {
	case errors.Is(err, ErrDenied):
		return err.Error(), err
	case err != nil:
		return t.name + " does not resolve", err
	case len(addrs) == 0:
		return "the name is permitted, and the egress proxy resolves it and checks its addresses", nil
	case permitted == 0:
		return denial.Error(), denial
	case permitted < len(addrs):
		return fmt.Sprintf("%d of %d addresses of %s are permitted, the others are skipped",
			permitted, len(addrs), t.name), nil
	case t.addr.IsValid():
		return "the address is permitted", nil
	}
	return fmt.Sprintf("all addresses of %s are permitted", t.name), nil
}

// CheckForProxy checks a URL and all its addresses for a party that connects on our behalf, such as an
// egress proxy. All addresses must be permitted, because that party may choose any of them.
func (p *Policy) CheckForProxy(ctx context.Context, u *url.URL) error {
	t, addrs, err := p.resolve(ctx, u)
	for _, addr := range addrs {
		if err := p.checkAddress(t, addr); err != nil {
			return err
		}
	}
	return err
}

// IsDirect reports whether a host is reached without the egress proxy, if there is one.
func (p *Policy) IsDirect(host string) bool { return matchesAny(p.directHosts, host) }

// resolve returns the target of a URL and its addresses: none if the egress proxy resolves the name. Then no
// allow-cidr lifts a denial of the name or the port.
func (p *Policy) resolve(ctx context.Context, u *url.URL) (target, []netip.Addr, error) {
	t, err := p.target(u)
	switch {
	case err != nil:
		return t, nil, err
	case t.addr.IsValid():
		return t, []netip.Addr{t.addr}, nil
	case p.proxyResolves && !p.IsDirect(t.name):
		return t, nil, denied(t.denials)
	}
	ctx, cancel := context.WithTimeout(ctx, p.dialling.timeout)
	defer cancel()
	addrs, err := p.dialling.resolver.LookupNetIP(ctx, "ip", p.firstName(t.name))
	if p.mayUseSearchList(err) {
		addrs, err = p.dialling.resolver.LookupNetIP(ctx, "ip", t.name)
	}
	if err == nil && len(addrs) == 0 {
		err = errors.New("look up host: no addresses")
	}
	return t, addrs, err
}
