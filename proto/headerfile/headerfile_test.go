package headerfile_test

import (
	"net/url"
	"path"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"unicode"

	"github.com/kv8s/curl-me-that/proto/headerfile"
)

func TestHeadersThatMayNotBeSet(t *testing.T) {
	for _, name := range []string{
		"host", "connection", "content-length", "transfer-encoding", "te", "trailer", "upgrade", "keep-alive", "expect",
		"accept-encoding",
		"range", "referer", "cookie", "if-none-match", "proxy-connection", "", "a b", "a:",
	} {
		if headerfile.Settable(name) {
			t.Errorf("%q may be set", name)
		}
	}
	for _, name := range []string{"authorization", "x-host", "user-agent", "accept"} {
		if !headerfile.Settable(name) {
			t.Errorf("%q may not be set", name)
		}
	}
}

func TestAPathIsBelowItsPrefix(t *testing.T) {
	for _, c := range []struct {
		path, prefix string
		want         bool
	}{
		{"/a//b/../c", "", true},
		{"/a//b/../c", "/", true},
		{"/a", "/a/", true},
		{"/a/", "/a", true},
		{"/a/b", "/a/", true},
		{"/ab", "/a/", false},
		{"/A/b", "/a", false},
		{"/b/a", "/a", false},
		{"", "/a", false},
	} {
		if got := headerfile.Below(c.path, c.prefix); got != c.want {
			t.Errorf("%s below %q: %t", c.path, c.prefix, got)
		}
	}
}

// plain are paths that every server reads in the same way.
func plain() []string {
	return []string{
		"/v1", "/v1/", "/v1/a/b.json", "/v1/.well-known/x", "/v1/v1.2.3/a_b-c~d", "/v1/a%20b%20%20c",
		"/v1/x:y@z=1,2&3+4!$'()*",
		"/v1/%7Bid%7d", "/v1/%3Fq%23f", "/v1/[a]", "/v1/%5B%5D%5e%60%22%3c%3E%7C", "/v1/a.", "/v1/.a",
	}
}

// ambiguous are paths that some servers read in another way.
func ambiguous() []string {
	return []string{
		// dot segments
		"/v1/.", "/v1/..", "/v1/./x", "/v1/../admin", "/v1/a/..", "/v1/.../x", "/v1/a..b", "/v1/%2e%2E/admin",
		"/v1/.%2e/admin", "/v1/%2e",
		"/v1/..%20/admin", "/v1/.%20./admin", "/v1/%20/x", "/v1/%20.", "/v1/.%20", "/v1/a.%20",
		// decoded more than once
		"/v1/%252e%252e/admin", "/v1/%25252e%25252e/admin", "/v1/%252f..%252fadmin", "/v1/%255c/admin", "/v1/%2e%252e",
		"/v1/100%25",
		// parameters of a segment
		"/v1/.;/admin", "/v1/..;/admin", "/v1/..;a=b/admin", "/v1;/x", "/v1/;/..%09/admin", "/v1/a;b", "/v1/%3b/x",
		"/v1/..%3B/admin",
		// overlong and wide UTF-8, and other encodings
		"/v1/%c0%ae%c0%ae/admin", "/v1/%e0%80%ae%e0%80%ae/admin", "/v1/%ef%bc%8e%ef%bc%8e/admin", "/v1/%c0%af", "/v1/%c1%9c",
		"/v1/%80",
		"/v1/%ae%ae/admin", "/v1/%ff", "/v1/%C3%A4", "/v1/\xc3\xa4", "/v1/%u002e%u002e/admin", "/v1/%uff0e%uff0e/admin",
		"/v1/%U002e/x",
		// control characters
		"/v1/.%00./admin", "/v1/%00", "/v1/.%09./admin", "/v1/.%0d%0a./admin", "/v1/%0a", "/v1/.%7f./x", "/v1/%1f",
		"/v1/\x00",
		// separators
		"/v1//admin", "//v1/x", "/v1/x//", "/v1/%2fadmin", "/v1/%2F..", "/v1/%5cadmin", "/v1/..%5Cadmin", "/v1/a\\b",
		"/v1\\..\\admin",
		// needless escapes
		"/v1/%61dmin", "/%76%31/x", "/v1/%30", "/v1/%2d", "/v1/%5f", "/v1/%7E", "/v1/%3a", "/v1/%2B", "/v1/%26",
		// no escapes at all
		"/v1/%", "/v1/%2", "/v1/%zz", "/v1/%%32%65", "/v1/ x", "/v1/a?b", "/v1/a#b", "v1", "/v1/\n",
	}
}

func TestOnlyAPathThatServersReadInOneWayIsBelowAPrefix(t *testing.T) {
	for _, path := range plain() {
		if !headerfile.Below(path, "/v1") {
			t.Errorf("%s is not below /v1", path)
		}
	}
	for _, path := range ambiguous() {
		if headerfile.Below(path, "/v1") {
			t.Errorf("%q is below /v1", path)
		}
	}
}

// readings are the ways in which servers and proxies interpret a path.
var readings = []func(string) string{
	func(s string) string {
		return escape.ReplaceAllStringFunc(s, func(e string) string {
			b, _ := strconv.ParseUint(e[1:], 16, 8)
			return string([]byte{byte(b)})
		})
	},
	func(s string) string {
		return wideEscape.ReplaceAllStringFunc(s, func(e string) string {
			r, _ := strconv.ParseUint(e[2:], 16, 16)
			return string(rune(r))
		})
	},
	// overlong UTF-8
	strings.NewReplacer("\xc0\xae", ".", "\xe0\x80\xae", ".", "\xc0\xaf", "/", "\xe0\x80\xaf", "/").Replace,
	strings.NewReplacer("\xc1\x9c", "\\").Replace,
	// the nearest ASCII character
	strings.NewReplacer("\uff0e", ".", "\uff0f", "/", "\uff3c", "\\", "\u2024", ".", "\u2215", "/", "\u2044", "/").Replace,
	strings.NewReplacer("\\", "/").Replace,
	strings.NewReplacer(" ", "").Replace,
	func(s string) string { return parameters.ReplaceAllString(s, "") },
	cutAt("\x00"), cutAt("?"), cutAt("#"),
	func(s string) string { // without the eighth bit
		return strings.Map(func(r rune) rune { return r & 0x7f }, string([]rune(s)))
	},
	func(s string) string { // without control characters
		return strings.Map(func(r rune) rune {
			if unicode.IsControl(r) {
				return -1
			}
			return r
		}, s)
	},
	func(s string) string { // as file names on Windows
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
}

func cutAt(end string) func(string) string {
	return func(s string) string { before, _, _ := strings.Cut(s, end); return before }
}

var (
	escape     = regexp.MustCompile(`%[0-9A-Fa-f]{2}`)
	wideEscape = regexp.MustCompile(`%[uU][0-9A-Fa-f]{4}`)
	parameters = regexp.MustCompile(`;[^/]*`)
)

// leaves returns a reading of a path that is outside of a prefix, after at most that many steps.
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
	for _, path := range append(plain(), ambiguous()...) {
		f.Add(strings.TrimPrefix(path, "/v1/"))
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
