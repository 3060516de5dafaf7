package egress

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"

	"code.dny.dev/ssrf"
)

// Policy decides about hosts, ports and addresses for some namespaces. It is immutable: a changed
// file gives new policies, so equal pointers mean the same policy. It is safe for concurrent use.
type Policy struct {
	lists
	guardian *ssrf.Guardian
	dialling *dialling
	text     string
}

func newPolicy(cfg Config, d *dialling) (*Policy, error) {
	l, err := cfg.compile()
	if err != nil {
		return nil, err
	}
	return &Policy{
		lists: l,
		guardian: ssrf.New(
			ssrf.WithAnyPort(), // checkTarget checks the port
			ssrf.WithDeniedV4Prefixes(providerPrefixes()...),
			ssrf.WithDeniedV6Prefixes(providerPrefixes()...),
		),
		dialling: d,
		text:     fmt.Sprintf("%+v", cfg),
	}, nil
}

// Text is equal for equal policies, also in other processes.
func (p *Policy) Text() string { return p.text }

// CheckURL checks the text of a URL. If only an allow-cidr can permit the URL, the decision is left
// to the dial. The error is a *DeniedError.
func (p *Policy) CheckURL(u *url.URL) error {
	_, err := p.target(u)
	return err
}

// target is a requested host and port, checked as far as possible without an address.
type target struct {
	host
	port uint16
	// denials by the name and port rules, which only an allow-cidr lifts.
	denials []Rule
}

func (p *Policy) target(u *url.URL) (target, error) {
	h, port, err := hostAndPort(u)
	if err != nil {
		return target{}, err
	}
	return p.checkTarget(h, port)
}

// checkTarget applies rules 5 to 7, and the remaining rules if the host is an address.
func (p *Policy) checkTarget(h host, port uint16) (target, error) {
	t := target{host: h, port: port}
	if matchesAny(p.denyHosts, h.name) {
		return t, &DeniedError{Rule: RuleDenyHost}
	}
	if len(p.onlyHosts) > 0 && !matchesAny(p.onlyHosts, h.name) {
		return t, &DeniedError{Rule: RuleOnlyHost}
	}
	if !h.addr.IsValid() && isPrivateName(h.name) && !matchesAny(p.allowHosts, h.name) {
		t.denials = append(t.denials, RuleName)
	}
	if !slices.Contains(p.ports, port) {
		t.denials = append(t.denials, RulePort)
	}
	if h.addr.IsValid() {
		return t, p.checkAddress(t, h.addr)
	}
	if len(p.allow) == 0 {
		return t, denied(t.denials)
	}
	return t, nil
}

// checkAddress applies rules 8 to 10 to one address of a target.
func (p *Policy) checkAddress(t target, addr netip.Addr) error {
	if !addr.IsValid() || addr.Zone() != "" {
		return &DeniedError{Rule: RuleAddress}
	}
	addr = addr.Unmap()
	v4, isTranslated := translated(p.nat64, addr)
	switch {
	case covers(p.deny, addr):
		return &DeniedError{Rule: RuleDenyCIDR}
	case isTranslated:
		return p.checkAddress(t, v4)
	case covers(p.allow, addr):
		if ssrf.IPv6NAT64Prefix.Contains(addr) {
			return p.checkAddress(t, embedded(addr, ssrf.IPv6NAT64Prefix.Bits()))
		}
		return nil
	case isISATAP(addr), p.guardian.SafeAddrPort(netip.AddrPortFrom(addr, t.port)) != nil:
		return denied(append(slices.Clip(t.denials), RuleAddress))
	}
	return denied(t.denials)
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
	if p.mayUseSearchList(ctx, t.name, err) {
		addrs, err = p.dialling.resolver.LookupNetIP(ctx, "ip", t.name)
	}
	if err == nil && len(addrs) == 0 {
		err = errors.New("look up host: no addresses")
	}
	return t, addrs, err
}
