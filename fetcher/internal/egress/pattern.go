package egress

import (
	"errors"
	"slices"
	"strings"
)

// Pattern is a host pattern in lower case. A * matches any characters, including dots:
// *.example.com matches every name below example.com at any depth, but not example.com.
type Pattern string

// ParsePattern validates a pattern and converts it to lower case.
func ParsePattern(s string) (Pattern, error) {
	s = strings.TrimSuffix(strings.ToLower(strings.TrimSpace(s)), ".")
	if s == "" || strings.ContainsFunc(s, notInPattern) {
		return "", errors.New("not a host pattern such as *.example.com")
	}
	return Pattern(s), nil
}

func notInPattern(r rune) bool {
	return !strings.ContainsRune("abcdefghijklmnopqrstuvwxyz0123456789.:-*", r)
}

// IsExact reports whether the pattern matches one host only.
func (p Pattern) IsExact() bool { return !strings.Contains(string(p), "*") }

// Match reports whether a host, in lower case and without a trailing dot, matches.
func (p Pattern) Match(host string) bool {
	parts := strings.Split(string(p), "*")
	if len(parts) == 1 {
		return host == string(p)
	}
	first, last := parts[0], parts[len(parts)-1]
	if len(host) < len(first)+len(last) || !strings.HasPrefix(host, first) || !strings.HasSuffix(host, last) {
		return false
	}
	host = host[len(first) : len(host)-len(last)]
	for _, part := range parts[1 : len(parts)-1] {
		_, rest, found := strings.Cut(host, part)
		if !found {
			return false
		}
		host = rest
	}
	return true
}

func matchesAny(patterns []Pattern, host string) bool {
	return slices.ContainsFunc(patterns, func(p Pattern) bool { return p.Match(host) })
}
