package pipeline

import (
	"fmt"
	"net/url"
	"strings"
)

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
	if strings.IndexFunc(s, special) < 0 {
		return s
	}
	var b strings.Builder
	for i := range len(s) {
		if c := s[i]; special(rune(c)) {
			fmt.Fprintf(&b, "%%%02X", c)
		} else {
			b.WriteByte(c)
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

func special(c rune) bool {
	return (c|0x20 < 'a' || c|0x20 > 'z') && (c < '0' || c > '9') && c != '-' && c != '_' && c != ':'
}
