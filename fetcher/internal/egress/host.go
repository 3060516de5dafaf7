package egress

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/kv8s/curl-me-that/proto/annotation/weburl"
)

// maxLabel is the maximum length of a DNS label (RFC 1035 section 2.3.4).
const maxLabel = 63

// reserved returns the suffixes of names that are never public: RFC 6761 (localhost), RFC 6762
// (local), ICANN's private-use domain (internal), the cluster's services, RFC 8375 (home.arpa), RFC
// 7686 (onion).
func reserved() []string {
	return []string{"localhost", "local", "internal", "svc", "home.arpa", "onion"}
}

// host is the parsed host of a URL.
type host struct {
	// name is in lower case, without a trailing dot; canonical for an address.
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
	if len(name) > weburl.MaxHostBytes {
		return host{}, &DeniedError{Rule: RuleHost}
	}
	labels := strings.Split(name, ".")
	for _, label := range labels {
		if !isLabel(label) {
			return host{}, &DeniedError{Rule: RuleHost}
		}
	}
	if isNumber(labels[len(labels)-1]) {
		return host{}, &DeniedError{Rule: RuleHost}
	}
	return host{name: name}, nil
}

func isLabel(s string) bool {
	if s == "" || len(s) > maxLabel || s[0] == '-' || s[len(s)-1] == '-' {
		return false
	}
	for i := range len(s) {
		c := s[i]
		if c != '-' && (c < '0' || c > '9') && (c < 'a' || c > 'z') {
			return false
		}
	}
	return true
}

// isNumber reports whether lenient parsers read a host with that last label as an IPv4 address (URL
// Standard, "ends in a number").
func isNumber(label string) bool {
	if strings.Trim(label, "0123456789") == "" {
		return true
	}
	digits, hex := strings.CutPrefix(label, "0x")
	return hex && strings.Trim(digits, "0123456789abcdef") == ""
}

// isPrivateName reports whether a name cannot be public: a single label, or a
// reserved suffix.
func isPrivateName(name string) bool {
	return !strings.Contains(name, ".") ||
		slices.ContainsFunc(reserved(), func(suffix string) bool { return strings.HasSuffix(name, "."+suffix) })
}
