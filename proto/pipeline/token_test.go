package pipeline

import (
	"errors"
	"strings"
	"testing"
)

func TestToken(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]string{
		"":                 "%",
		"default":          "default",
		"kube-root-ca.crt": "kube-root-ca%2Ecrt",
		"a_B-9":            "a_B-9",
		"[::1]":            "%5B::1%5D",
		"100%":             "100%25",
		"*":                "%2A",
		">":                "%3E",
		"a b\tc\r\n":       "a%20b%09c%0D%0A",
		"ä":                "%C3%A4",
		"\x00\xff":         "%00%FF",
	} {
		if got := token(value); got != want {
			t.Errorf("token(%q) = %q, want %q", value, got, want)
		}
		if got, err := untoken(want); err != nil || got != value {
			t.Errorf("untoken(%q) = %q, %v, want %q", want, got, err, value)
		}
	}
}

func TestUntokenRefuses(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{
		"", "%%", "%2", "a%", "a%2", "%2e", "%GG", "%61", "%2D", "a.b", "*", ">", "a b", "ä", "\x00", "%2E.",
	} {
		if got, err := untoken(bad); !errors.Is(err, ErrSubject) {
			t.Errorf("untoken(%q) = %q, %v, want ErrSubject", bad, got, err)
		}
	}
}

// untoken only accepts output of token, so each value has one encoding.
func FuzzToken(f *testing.F) {
	for _, seed := range []string{"", "%", "%2E", "%2e", "a%", "%41", "a.b", ">", "*", " ", "kube-root-ca%2Ecrt", "\xff"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if value, err := untoken(s); err == nil && token(value) != s {
			t.Errorf("untoken(%q) = %q, which is written %q", s, value, token(value))
		} else if err != nil && !errors.Is(err, ErrSubject) {
			t.Errorf("untoken(%q) = %v, want ErrSubject", s, err)
		}
		written := token(s)
		if written == "" || strings.ContainsAny(written, ".*> \t\r\n\x00") {
			t.Errorf("token(%q) = %q is not one literal token", s, written)
		}
		if value, err := untoken(written); err != nil || value != s {
			t.Errorf("untoken(token(%q)) = %q, %v", s, value, err)
		}
	})
}
