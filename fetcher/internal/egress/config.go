package egress

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"path"
	"slices"
	"strings"

	"github.com/kv8s/curl-me-that/proto/weburl"
)

// Config lists what a policy allows and denies in addition to the default. The zero value is the default policy: public
// addresses, ports 80, 443, 8080, 8443. The field tags are the names of the flags.
type Config struct {
	// AllowCIDRs are prefixes or single addresses that are allowed at any port and under any name.
	AllowCIDRs []string `yaml:"allow-cidr"`
	// DenyCIDRs are prefixes or single addresses that are never allowed.
	DenyCIDRs []string `yaml:"deny-cidr"`
	// AllowHosts are host patterns that are exempt from the name rule.
	AllowHosts []string `yaml:"allow-host"`
	// DenyHosts are host patterns that are never allowed.
	DenyHosts []string `yaml:"deny-host"`
	// OnlyHosts are the only allowed host patterns. None means all.
	OnlyHosts []string `yaml:"only-host"`
	// AllowPorts are allowed in addition to the default ports.
	AllowPorts []int `yaml:"allow-port"`
	// NAT64 are the network's prefixes for translation to IPv4, in addition to 64:ff9b::/96: an address in one is treated
	// as the IPv4 address in it. They apply to the whole network, so files of namespaces cannot set them.
	NAT64 []string `yaml:"-"`
	// DirectHosts are host patterns that do not go through the egress proxy.
	DirectHosts []string `yaml:"-"`
	// ProxyResolves leaves lookup and addresses of all other names to the egress proxy.
	ProxyResolves bool `yaml:"-"`
}

// Validate checks every entry and names the first invalid one.
func (c Config) Validate() error {
	_, err := c.compile()
	return err
}

// with returns the lists of both configurations.
func (c Config) with(more Config) Config {
	return Config{
		AllowCIDRs: slices.Concat(c.AllowCIDRs, more.AllowCIDRs),
		DenyCIDRs:  slices.Concat(c.DenyCIDRs, more.DenyCIDRs),
		AllowHosts: slices.Concat(c.AllowHosts, more.AllowHosts),
		DenyHosts:  slices.Concat(c.DenyHosts, more.DenyHosts),
		OnlyHosts:  slices.Concat(c.OnlyHosts, more.OnlyHosts),
		AllowPorts: slices.Concat(c.AllowPorts, more.AllowPorts),
		NAT64:      c.NAT64,

		DirectHosts: c.DirectHosts, ProxyResolves: c.ProxyResolves,
	}
}

// lists are the compiled lists of a Config.
type lists struct {
	allow, deny                      []netip.Prefix
	allowHosts, denyHosts, onlyHosts []Pattern
	directHosts                      []Pattern
	proxyResolves                    bool
	ports                            []uint16
	nat64                            []netip.Prefix
}

func (c Config) compile() (lists, error) {
	var l lists
	var errs [8]error
	l.allow, errs[0] = each("allow-cidr", c.AllowCIDRs, parsePrefix)
	l.deny, errs[1] = each("deny-cidr", c.DenyCIDRs, parsePrefix)
	l.allowHosts, errs[2] = each("allow-host", c.AllowHosts, ParsePattern)
	l.denyHosts, errs[3] = each("deny-host", c.DenyHosts, ParsePattern)
	l.onlyHosts, errs[4] = each("only-host", c.OnlyHosts, ParsePattern)
	l.ports, errs[5] = each("allow-port", c.AllowPorts, parsePort)
	l.nat64, errs[6] = each("nat64-prefix", c.NAT64, parseNAT64)
	l.directHosts, errs[7] = each("direct-host", c.DirectHosts, ParsePattern)
	l.proxyResolves = c.ProxyResolves
	l.ports = append([]uint16{80, 443, 8080, 8443}, l.ports...) // the default ports are always allowed
	return l, cmp.Or(errs[:]...)
}

func each[S, T any](flag string, in []S, parse func(S) (T, error)) ([]T, error) {
	out := make([]T, 0, len(in))
	for _, entry := range in {
		value, err := parse(entry)
		if err != nil {
			return nil, fmt.Errorf("%s %q: %w", flag, fmt.Sprint(entry), err)
		}
		out = append(out, value)
	}
	return out, nil
}

func parsePrefix(s string) (netip.Prefix, error) {
	s = strings.TrimSpace(s)
	prefix, err := netip.ParsePrefix(s)
	if err != nil {
		addr, err := netip.ParseAddr(s)
		if err != nil || addr.Zone() != "" {
			return netip.Prefix{}, errors.New("not an address range such as 10.0.0.0/8 or ::1/128")
		}
		prefix = netip.PrefixFrom(addr, addr.BitLen())
	}
	if prefix.Addr().Is4In6() {
		return netip.Prefix{}, errors.New("write an IPv4 range as IPv4")
	}
	return prefix.Masked(), nil
}

// parseNAT64 accepts the lengths that RFC 6052 section 2.2 permits.
func parseNAT64(s string) (netip.Prefix, error) {
	prefix, err := parsePrefix(s)
	if err != nil || !prefix.Addr().Is6() || !slices.Contains([]int{32, 40, 48, 56, 64, 96}, prefix.Bits()) {
		return netip.Prefix{}, errors.New("not a NAT64 prefix of 32, 40, 48, 56, 64 or 96 bits such as 2001:db8:64::/96")
	}
	return prefix, nil
}

func parsePort(n int) (uint16, error) {
	if n < 1 || n > 65535 {
		return 0, errors.New("not a port from 1 to 65535")
	}
	return uint16(n), nil
}

// Pattern is a host pattern in lower case. A * matches any characters, including dots:
// *.example.com matches every name below example.com at any depth, but not example.com.
type Pattern string

// ParsePattern validates a pattern and converts it to the form of hosts: in lower case, an address in its shortest
// form. A pattern that can match no host is an error, such as .example.com or example.com:8080.
func ParsePattern(s string) (Pattern, error) {
	s = strings.TrimSuffix(strings.ToLower(strings.TrimSpace(s)), ".")
	if addr, err := netip.ParseAddr(s); err == nil && addr.Zone() == "" {
		return Pattern(addr.Unmap().String()), nil
	}
	addresses := strings.Contains(s, "*") && strings.Contains(s, ":") && strings.Trim(s, "0123456789abcdef:*") == ""
	if !addresses && !weburl.HostName(strings.ReplaceAll(s, "*", "x")) {
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
