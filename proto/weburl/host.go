package weburl

import (
	"net/netip"
	"net/url"
	"strings"
)

// HiddenHost replaces an IP address as the host of a URL, because addresses are kept out of
// subjects, logs, Events and traces.
const HiddenHost = "(address)"

// HostOf returns the canonical host of a URL: in lower case and without port, HiddenHost for an IP
// address, and "" if there is none.
func HostOf(raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		return ""
	}
	return ShownHost(strings.ToLower(u.Hostname()))
}

// HostIs reports whether host is the host of a URL, as returned by HostOf or, for an IP address, in
// any spelling.
func HostIs(raw, host string) bool {
	if wanted, isAddress := address(host); isAddress {
		u, err := url.Parse(raw)
		if err != nil {
			return false
		}
		have, isAddress := address(u.Hostname())
		return isAddress && have == wanted
	}
	return HostOf(raw) == strings.ToLower(host)
}

// IsAddress reports whether a host is an IP address.
func IsAddress(host string) bool {
	_, isAddress := address(host)
	return isAddress
}

// ShownHost returns a host as it appears in subjects and messages: HiddenHost for an IP address. A host that is too
// long for a DNS name is cut, because NATS closes connections whose subjects exceed 4 KiB. Only valid UTF-8 is left,
// because no message can be encoded with other bytes.
func ShownHost(host string) string {
	if _, isAddress := address(host); isAddress {
		return HiddenHost
	}
	return strings.ToValidUTF8(host[:min(len(host), MaxHostBytes)], "")
}

// address parses a host as an IP address without its zone.
func address(host string) (netip.Addr, bool) {
	addr, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return addr.Unmap().WithZone(""), err == nil
}
