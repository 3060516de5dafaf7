package egress

import "net/netip"

// azurePlatform is public by number and internal by use: Azure's platform
// services, metadata and DNS among them, on every virtual machine.
func azurePlatform() netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{168, 63, 129, 16}), 32)
}

// isISATAP reports whether an IPv6 address has an ISATAP interface identifier,
// which carries an IPv4 address to tunnel to (RFC 5214 section 6.1).
func isISATAP(addr netip.Addr) bool {
	if !addr.Is6() {
		return false
	}
	b := addr.As16()
	return (b[8] == 0 || b[8] == 2) && b[9] == 0 && b[10] == 0x5e && b[11] == 0xfe
}

// embedded returns the IPv4 address in the last 32 bits.
func embedded(addr netip.Addr) netip.Addr {
	b := addr.As16()
	return netip.AddrFrom4([4]byte(b[12:]))
}

func covers(prefixes []netip.Prefix, addr netip.Addr) bool {
	for _, prefix := range prefixes {
		if prefix.Contains(addr) {
			return true
		}
	}
	return false
}
