package pipeline

import (
	"net/netip"
	"net/url"
	"strings"

	"github.com/kv8s/curl-me-that/proto/annotation/weburl"
)

// HiddenHost stands for the host of a URL where that is an address, which is
// kept out of subjects, logs, Events and traces.
const HiddenHost = "(address)"

// HostOf returns the host of a URL by the one name that it has everywhere: in
// lower case and without port, HiddenHost for an address, and nothing for what
// is no URL or has no host.
func HostOf(raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		return ""
	}
	return hostName(strings.ToLower(u.Hostname()))
}

// HostIs reports whether host names the host of a URL: by the name that HostOf
// returns, or, for an address, by any spelling of it.
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

// IsAddress reports whether a host is an address, and no name.
func IsAddress(host string) bool {
	_, isAddress := address(host)
	return isAddress
}

// hostName returns what stands for a host in a subject. A host that is longer
// than a name can be is cut: it comes from a URL, and the server closes the
// connection of a client whose subject exceeds 4 KiB.
func hostName(host string) string {
	if _, isAddress := address(host); isAddress {
		return HiddenHost
	}
	return host[:min(len(host), weburl.MaxHostBytes)]
}

// address returns a host as an address, without its zone, and whether it is one.
func address(host string) (netip.Addr, bool) {
	addr, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return addr.Unmap().WithZone(""), err == nil
}
