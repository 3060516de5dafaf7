package headerfile_test

import (
	"testing"

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
