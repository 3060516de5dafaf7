package egress

import (
	"net"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/kv8s/curl-me-that/proto/weburl"
)

// head matches the scheme and the authority of a URL.
var head = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9+.\-]*:(?://[^/?#]*)?`)

// ParseURL applies rules 1 to 4, which need no policy, to the text of a URL. The host of the returned URL is in lower
// case and without a trailing dot, an address in its shortest form. RawPath is always the path as written, which may
// have characters or percent signs that package url would escape. The error is a *DeniedError.
func ParseURL(raw string) (*url.URL, error) {
	if len(raw) > weburl.MaxTargetBytes {
		return nil, &DeniedError{Rule: RuleLength}
	}
	for i := range len(raw) {
		if c := raw[i]; c <= ' ' || c > '~' {
			return nil, &DeniedError{Rule: RuleSyntax}
		}
	}
	start := head.FindString(raw)
	u, err := url.Parse(start)
	if err != nil || !u.IsAbs() || strings.Contains(start, `\`) {
		return nil, &DeniedError{Rule: RuleSyntax}
	}
	h, _, err := hostAndPort(u)
	if err != nil {
		return nil, err
	}
	u.Host = strings.TrimSuffix(net.JoinHostPort(h.name, u.Port()), ":")
	rest, _, _ := strings.Cut(raw[len(start):], "#")
	u.RawPath, u.RawQuery, u.ForceQuery = strings.Cut(rest, "?")
	if u.Path, err = url.PathUnescape(u.RawPath); err != nil {
		u.Path = u.RawPath
	}
	return u, nil
}

// hostAndPort returns host and port of a URL with a supported scheme, no userinfo and no other oddity.
func hostAndPort(u *url.URL) (host, uint16, error) {
	switch {
	case u.Scheme != "http" && u.Scheme != "https":
		return host{}, 0, &DeniedError{Rule: RuleScheme}
	case u.Host == "":
		return host{}, 0, &DeniedError{Rule: RuleSyntax}
	case u.User != nil:
		return host{}, 0, &DeniedError{Rule: RuleUserinfo}
	}
	h, err := parseHost(u.Hostname())
	if err != nil {
		return host{}, 0, err
	}
	port, err := portOf(u)
	return h, port, err
}

func portOf(u *url.URL) (uint16, error) {
	if strings.HasSuffix(u.Host, ":") {
		return 0, &DeniedError{Rule: RulePort}
	}
	return portNumber(Port(u))
}

// Authority returns host and port of a URL, the same for all spellings.
func Authority(u *url.URL) string { return net.JoinHostPort(u.Hostname(), Port(u)) }

// Port returns the port of a URL, or its scheme's default port.
func Port(u *url.URL) string {
	if p := u.Port(); p != "" {
		return p
	}
	if u.Scheme == "https" {
		return "443"
	}
	return "80"
}

// portNumber rejects zero, signs, leading zeros and names.
func portNumber(text string) (uint16, error) {
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil || n == 0 || strconv.FormatUint(n, 10) != text {
		return 0, &DeniedError{Rule: RulePort}
	}
	return uint16(n), nil
}

// endsInNumber matches hosts that lenient parsers read as an IPv4 address (URL Standard, "ends in a number").
var endsInNumber = regexp.MustCompile(`(?:^|\.)(?:[0-9]+|0x[0-9a-f]*)$`)

// reservedSuffixes are the suffixes of names that are never public: RFC 6761 (localhost), RFC 6762 (local), ICANN's
// private-use domain (internal), the cluster's services, RFC 8375 (home.arpa), RFC 7686 (onion).
func reservedSuffixes() []string {
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

// isPrivateName reports whether a name cannot be public: it is a single label or has a reserved suffix.
func isPrivateName(name string) bool {
	return !strings.Contains(name, ".") ||
		slices.ContainsFunc(reservedSuffixes(), func(suffix string) bool { return strings.HasSuffix(name, "."+suffix) })
}
