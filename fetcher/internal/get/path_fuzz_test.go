package get

import (
	"net/url"
	"path"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/kv8s/curl-me-that/proto/headerfile"
)

// readings are the ways in which servers and proxies interpret a path.
var readings = []func(string) string{
	percentDecoded,
	func(s string) string { return wideEscape.ReplaceAllStringFunc(s, wideDecoded) },
	func(s string) string { // overlong UTF-8
		return strings.NewReplacer("\xc0\xae", ".", "\xe0\x80\xae", ".", "\xc0\xaf", "/", "\xe0\x80\xaf", "/", "\xc1\x9c",
			"\\").Replace(s)
	},
	func(s string) string { // the nearest character of ASCII
		return strings.NewReplacer("\uff0e", ".", "\uff0f", "/", "\uff3c", "\\", "\u2024", ".", "\u2215", "/", "\u2044",
			"/").Replace(s)
	},
	func(s string) string { // seven bits
		return strings.Map(func(r rune) rune { return r & 0x7f }, string([]rune(s)))
	},
	func(s string) string { return strings.ReplaceAll(s, "\\", "/") },
	func(s string) string { return parameters.ReplaceAllString(s, "") },
	func(s string) string { before, _, _ := strings.Cut(s, "\x00"); return before },
	func(s string) string { before, _, _ := strings.Cut(s, "?"); return before },
	func(s string) string { before, _, _ := strings.Cut(s, "#"); return before },
	func(s string) string {
		return strings.Map(func(r rune) rune {
			if r < ' ' || r == 0x7f {
				return -1
			}
			return r
		}, s)
	},
	func(s string) string { // as Windows names files
		segments := strings.Split(s, "/")
		for i, segment := range segments {
			if segment != "." && segment != ".." {
				segments[i] = strings.TrimRight(segment, ". ")
			}
			if strings.Trim(segment, " ") == ".." {
				segments[i] = ".."
			}
		}
		return strings.Join(segments, "/")
	},
	func(s string) string { return strings.ReplaceAll(s, " ", "") },
}

var (
	escape     = regexp.MustCompile(`%[0-9A-Fa-f]{2}`)
	wideEscape = regexp.MustCompile(`%[uU][0-9A-Fa-f]{4}`)
	parameters = regexp.MustCompile(`;[^/]*`)
)

func percentDecoded(s string) string {
	return escape.ReplaceAllStringFunc(s, func(e string) string {
		b, _ := strconv.ParseUint(e[1:], 16, 8)
		return string([]byte{byte(b)})
	})
}

func wideDecoded(e string) string {
	r, _ := strconv.ParseUint(e[2:], 16, 16)
	return string(rune(r))
}

// leaves returns a reading by which a path leaves a prefix within that many steps, if there is one.
func leaves(p, prefix string, steps int, seen map[string]bool) (string, bool) {
	if seen[p] {
		return "", false
	}
	seen[p] = true
	if clean := path.Clean("/" + p); clean != prefix && !strings.HasPrefix(clean, prefix+"/") {
		return p, true
	}
	if steps == 0 {
		return "", false
	}
	for _, read := range readings {
		if found, ok := leaves(read(p), prefix, steps-1, seen); ok {
			return found, true
		}
	}
	return "", false
}

// FuzzPathBelowPrefix checks that a path below a prefix stays below it in every reading.
func FuzzPathBelowPrefix(f *testing.F) {
	for _, seed := range []string{
		"a", "../x", "%2e%2e/x", "%252e%252e/x", "%c0%ae%c0%ae/x", "%u002e%u002e/x", ".%00./x", ".;/x", "..%20/x", ".%20./x",
		"a\\..\\..\\x",
		"%2f..%2f..", "%ef%bc%8e%ef%bc%8e/x", ".%09./x", "%3f/..", "%23", "%7b", "a%20b.c", ";/../x", "%5c..%5cx",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, rest string) {
		if len(rest) > 200 {
			return
		}
		for _, raw := range []string{"/v1/" + rest, "/v1" + rest} {
			sent := raw
			if u, err := url.Parse("https://a.example.com" + raw); err == nil {
				sent = u.EscapedPath()
			}
			for _, p := range []string{raw, sent} {
				if !headerfile.Below(p, "/v1") {
					continue
				}
				if reading, ok := leaves(p, "/v1", 4, map[string]bool{}); ok {
					t.Fatalf("%q counts as below /v1, and may be read as %q", p, reading)
				}
			}
		}
	})
}
