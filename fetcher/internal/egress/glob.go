package egress

import (
	"errors"
	"strings"
)

var errGlob = errors.New("not a host pattern such as *.example.com")

// glob is a lower-case host pattern in which * stands for any characters,
// dots included.
type glob string

func parseGlob(s string) (glob, error) {
	s = strings.TrimSuffix(strings.ToLower(strings.TrimSpace(s)), ".")
	if s == "" || strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789.:*-") != "" {
		return "", errGlob
	}
	for _, r := range s {
		if !strings.ContainsRune("abcdefghijklmnopqrstuvwxyz0123456789.:*-", r) {
			return "", errGlob
		}
	}
	return glob(s), nil
}

// matches compares with a host in lower case without a trailing dot.
func (g glob) matches(host string) bool {
	parts := strings.Split(string(g), "*")
	if len(parts) == 1 {
		return host == string(g)
	}
	first, last := parts[0], parts[len(parts)-1]
	if len(host) < len(first)+len(last) || !strings.HasPrefix(host, first) || !strings.HasSuffix(host, last) {
		return false
	}
	host = host[len(first) : len(host)-len(last)]
	for _, part := range parts[1 : len(parts)-1] {
		i := strings.Index(host, part)
		if i < 0 {
			return false
		}
		host = host[i+len(part):]
	}
	return true
}

func matchesAny(globs []glob, host string) bool {
	for _, g := range globs {
		if g.matches(host) {
			return true
		}
	}
	return false
}
