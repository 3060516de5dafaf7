package egress

import (
	"net/netip"
	"slices"
)

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

// translated returns the IPv4 address to which a NAT64 gateway of the network translates an address, if any.
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
