package egress

import (
	"errors"
	"path"
	"slices"
	"strings"
)

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
