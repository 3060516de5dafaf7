package egress

import (
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"github.com/kv8s/curl-me-that/proto/annotation/weburl"
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
