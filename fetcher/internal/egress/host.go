package egress

import (
	"errors"
	"net/netip"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/kv8s/curl-me-that/proto/weburl"
)

// endsInNumber matches hosts that lenient parsers read as an IPv4 address (URL Standard, "ends in a
// number").
var endsInNumber = regexp.MustCompile(`(?:^|\.)(?:[0-9]+|0x[0-9a-f]*)$`)

// reserved returns the suffixes of names that are never public: RFC 6761 (localhost), RFC 6762
// (local), ICANN's private-use domain (internal), the cluster's services, RFC 8375 (home.arpa), RFC
// 7686 (onion).
func reserved() []string {
	return []string{"localhost", "local", "internal", "svc", "home.arpa", "onion"}
}

// host is the parsed host of a URL.
type host struct {
	// name is in lower case and without a trailing dot, or the canonical form of an address.
	name string
	// addr is valid if the host is an address.
	addr netip.Addr
}

// parseHost checks the form of a host from url.URL.Hostname. It does not decode, fold or complete
// anything: a host that a resolver or a C library might read differently is denied.
func parseHost(s string) (host, error) {
	if addr, err := netip.ParseAddr(s); err == nil {
		if addr.Zone() != "" {
			return host{}, &DeniedError{Rule: RuleHost}
		}
		addr = addr.Unmap()
		return host{name: addr.String(), addr: addr}, nil
	}
	name := strings.ToLower(strings.TrimSuffix(s, "."))
	if !weburl.HostName(name) || endsInNumber.MatchString(name) {
		return host{}, &DeniedError{Rule: RuleHost}
	}
	return host{name: name}, nil
}

// isPrivateName reports whether a name cannot be public: it is a single label or has a reserved
// suffix.
func isPrivateName(name string) bool {
	return !strings.Contains(name, ".") ||
		slices.ContainsFunc(reserved(), func(suffix string) bool { return strings.HasSuffix(name, "."+suffix) })
}

// providerPrefixes are public ranges that clouds use internally: only reachable from within the
// cloud, by everything that runs in it.
func providerPrefixes() []netip.Prefix {
	return []netip.Prefix{
		// Azure: platform services of a virtual machine, including metadata and DNS.
		netip.MustParsePrefix("168.63.129.16/32"),
		// IBM Cloud: services, and private endpoints of services.
		netip.MustParsePrefix("161.26.0.0/16"),
		netip.MustParsePrefix("166.8.0.0/14"),
		// Google Cloud: restricted and private access to its APIs.
		netip.MustParsePrefix("199.36.153.4/30"),
		netip.MustParsePrefix("199.36.153.8/30"),
		netip.MustParsePrefix("2600:2d00:2:1000::/56"),
		netip.MustParsePrefix("2600:2d00:2:2000::/56"),
	}
}

// isISATAP reports whether an IPv6 address has an ISATAP interface identifier, which contains an
// IPv4 address to tunnel to (RFC 5214 section 6.1).
func isISATAP(addr netip.Addr) bool {
	b := addr.As16()
	return (b[8] == 0 || b[8] == 2) && b[9] == 0 && b[10] == 0x5e && b[11] == 0xfe
}

// embedded returns the IPv4 address in an address of a NAT64 prefix (RFC 6052 section 2.2): after
// the prefix, and never in bits 64 to 71.
func embedded(addr netip.Addr, prefix int) netip.Addr {
	b := addr.As16()
	var v4 [4]byte
	at := prefix / 8
	for i := range v4 {
		if at == 8 {
			at++
		}
		v4[i] = b[at]
		at++
	}
	return netip.AddrFrom4(v4)
}

// translated returns the IPv4 address to which a NAT64 gateway of the network translates an
// address, if any.
func translated(prefixes []netip.Prefix, addr netip.Addr) (netip.Addr, bool) {
	for _, prefix := range prefixes {
		if prefix.Contains(addr) {
			return embedded(addr, prefix.Bits()), true
		}
	}
	return netip.Addr{}, false
}

func covers(prefixes []netip.Prefix, addr netip.Addr) bool {
	return slices.ContainsFunc(prefixes, func(p netip.Prefix) bool { return p.Contains(addr) })
}

// Pattern is a host pattern in lower case. A * matches any characters, including dots:
// *.example.com matches every name below example.com at any depth, but not example.com.
type Pattern string

// ParsePattern validates a pattern and converts it to lower case.
func ParsePattern(s string) (Pattern, error) {
	s = strings.TrimSuffix(strings.ToLower(strings.TrimSpace(s)), ".")
	if s == "" || strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789.:-*") != "" {
		return "", errors.New("not a host pattern such as *.example.com")
	}
	return Pattern(s), nil
}

// Match reports whether a host, in lower case and without a trailing dot, matches.
func (p Pattern) Match(host string) bool {
	ok, err := path.Match(string(p), host) // hosts have no slashes
	return ok && err == nil
}

func matchesAny(patterns []Pattern, host string) bool {
	return slices.ContainsFunc(patterns, func(p Pattern) bool { return p.Match(host) })
}
