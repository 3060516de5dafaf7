package pipeline

import (
	"fmt"
	"net/url"
	"strings"
)

const upperHex = "0123456789ABCDEF"

// emptyToken encodes the empty string: a subject has no empty tokens, and a lone percent sign is
// not an escape sequence.
const emptyToken = "%"

// token encodes s as one token of a subject. Letters, digits, '-', '_' and ':' stay as they are,
// every other byte becomes %XX, so that no value can add a token or a wildcard. The mapping is one
// to one.
func token(s string) string {
	if s == "" {
		return emptyToken
	}
	clean := true
	for i := 0; i < len(s) && clean; i++ {
		clean = plain(s[i])
	}
	if clean {
		return s
	}
	var b strings.Builder
	b.Grow(len(s) + 8)
	for i := 0; i < len(s); i++ {
		if c := s[i]; plain(c) {
			b.WriteByte(c)
		} else {
			b.WriteByte('%')
			b.WriteByte(upperHex[c>>4])
			b.WriteByte(upperHex[c&15])
		}
	}
	return b.String()
}

// untoken is the inverse of token. It only accepts output of token.
func untoken(t string) (string, error) {
	if t == emptyToken {
		return "", nil
	}
	s, err := url.PathUnescape(t)
	if err != nil || token(s) != t {
		return "", fmt.Errorf("%w: token %q", ErrSubject, t)
	}
	return s, nil
}

func plain(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_' || c == ':'
}
