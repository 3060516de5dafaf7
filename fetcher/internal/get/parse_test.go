package get

import (
	"errors"
	"math"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/kv8s/curl-me-that/fetcher/internal/egress"
)

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	for text, want := range map[string]time.Duration{
		"":                                  0,
		"0":                                 0,
		"120":                               2 * time.Minute,
		" 5 ":                               5 * time.Second,
		"9223372036":                        9223372036 * time.Second,
		"9223372037":                        math.MaxInt64,
		"1000000000000":                     math.MaxInt64,
		strings.Repeat("9", 1000):           math.MaxInt64,
		"1e12":                              0,
		"-5":                                0,
		"+5":                                0,
		"5.5":                               0,
		"soon":                              0,
		"Wed, 01 Jul 2026 12:01:00 GMT":     time.Minute,
		"Wed, 01 Jul 2026 11:00:00 GMT":     0,
		"Wednesday, 01-Jul-26 12:01:00 GMT": time.Minute,
		"Fri, 31 Dec 9999 23:59:59 GMT":     math.MaxInt64,
	} {
		if got := retryAfter(http.Header{"Retry-After": {text}}, now); got != want {
			t.Errorf("retryAfter(%q) = %s, want %s", text, got, want)
		}
	}
}

func TestTheLongestRetryAfterCounts(t *testing.T) {
	values := []string{"1", "20", "soon"} // proxies add their own
	if got := retryAfter(http.Header{"Retry-After": values}, time.Now()); got != 20*time.Second {
		t.Errorf("retryAfter() = %s", got)
	}
}

func TestRetryAfterIsComparedWithTheClockOfTheServer(t *testing.T) {
	h := http.Header{"Retry-After": {"Wed, 01 Jul 2026 12:01:00 GMT"}, "Date": {"Wed, 01 Jul 2026 12:00:00 GMT"}}
	for _, wrong := range []time.Duration{-65 * time.Second, 0, time.Hour} {
		now := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC).Add(wrong)
		if got := retryAfter(h, now); got != time.Minute {
			t.Errorf("retryAfter() = %s with a clock that is %s wrong", got, wrong)
		}
	}
}

func TestValidators(t *testing.T) {
	for text, want := range map[string]bool{
		`"v1"`: true, `W/"v1"`: true, `""`: true, `"!#~"`: true,
		"": false, `"`: false, "v1": false, `v1"`: false, `"v1`: false, `w/"v1"`: false, `"a"b"`: false, "\"a\nb\"": false,
		`"a b"`:    false,
		"\"\xff\"": false, `"` + strings.Repeat("x", 300) + `"`: false,
	} {
		if got := validETag(text) != ""; got != want {
			t.Errorf("validETag(%q) = %t", text, got)
		}
	}
	for text, want := range map[string]bool{
		"Sun, 06 Nov 1994 08:49:37 GMT": true, "Sunday, 06-Nov-94 08:49:37 GMT": true, "": false, "now": false,
	} {
		if got := validDate(text) != ""; got != want {
			t.Errorf("validDate(%q) = %t", text, got)
		}
	}
}

func expectRefusal(t *testing.T, content string, err error, want string) {
	t.Helper()
	if err == nil || err.Error() != want {
		t.Errorf("%q: %v, want %s", content, err, want)
	}
}

func TestParseHeaderFileRefuses(t *testing.T) {
	const secret, noHeader = "s3cr3t", "not a header that may be set"
	const noPattern = "not a host pattern such as *.example.com"
	const noNamespaces = `entry 1: add namespaces, such as namespaces: [team-a], or namespaces: ["*"] for all`
	const noList = "not a YAML list of entries with host, namespaces and headers"
	refused := map[string]string{
		"":                                     noList,
		"host: a":                              "line 1: " + noList,
		"- host: [" + secret:                   "line 1: " + noList,
		"- {hots: " + secret + "}":             "line 1: " + noList,
		"-":                                    "entry 1: " + noList,
		"- {host: a, namespaces: [x]}":         "entry 1: no headers, oauth2, bearerFile, clientCertificate or caFile",
		"- {namespaces: [x], headers: {a: b}}": "entry 1: host: " + noPattern,
		"- {host: a, headers: {X-A: b}}":       noNamespaces,
		"- {host: a, namespaces: [\"" + secret + " \\t x\"]}":      "entry 1: namespaces: " + noPattern,
		"- {host: a, namespaces: [x], headers: {a: b}}\n---\n- {}": "more than one YAML document",
	}
	for fields, want := range map[string]string{
		`headers: {"` + secret + ` x": b}`:       noHeader,
		"headers: {Host: b}":                     noHeader,
		"headers: {cookie: b}":                   noHeader,
		"headers: {if-match: b}":                 noHeader,
		"headers: {Proxy-Authorization: b}":      noHeader,
		`headers: {a: "` + secret + `\r\nb"}`:    "value is empty or has a control character",
		`headers: {a: ""}`:                       "value is empty or has a control character",
		"headers: {X-A: b}, schemes: [ftp]":      "schemes must be http or https",
		"headers: {X-A: b}, ports: [0]":          "ports must be from 1 to 65535",
		"headers: {X-A: b}, ports: [65536]":      "ports must be from 1 to 65535",
		"headers: {X-A: b}, pathPrefix: api":     "pathPrefix must start with a slash and mean the same to every server",
		"headers: {X-A: b}, pathPrefix: /a/../b": "pathPrefix must start with a slash and mean the same to every server",
		"bearerFile: " + secret:                  "bearerFile: no such file or directory",
		"bearerFile: ../" + secret:               "files must be in the directory of the header file, or below",
		`bearerFile: a, oauth2: {clientID: a}`:   "oauth2 and bearerFile exclude each other",
		"caFile: " + secret:                      "clientCertificate or caFile: no such file or directory",
		"clientCertificate: {certFile: a}":       "clientCertificate: add certFile and keyFile",
		`oauth2: {tokenURL: "http://a/"}`:        "oauth2: tokenURL must be an https URL without credentials",
		`oauth2: {tokenURL: "https://a/"}`:       "oauth2: add clientID and clientSecretFile",
	} {
		refused["- {host: a, namespaces: [x], "+fields+"}"] = "entry 1: " + want
	}
	bounds := "- {host: a, namespaces: [x], headers: {X-A: b}, ports: [1, 65535], pathPrefix: /}"
	if _, err := parseHeaderFile([]byte(bounds), ""); err != nil {
		t.Error(err)
	}
	for content, want := range refused {
		_, err := parseHeaderFile([]byte(content), "")
		expectRefusal(t, content, err, want)
	}
}

func TestSameOrigin(t *testing.T) {
	for pair, want := range map[[2]string]bool{
		{"https://a.example.com/", "https://a.example.com:443/x"}:     true,
		{"http://a.example.com/", "https://a.example.com/"}:           true,
		{"http://a.example.com:80/", "https://a.example.com:443/"}:    true,
		{"http://a.example.com/", "https://a.example.com:8443/"}:      false,
		{"http://a.example.com:8080/", "https://a.example.com/"}:      false,
		{"https://a.example.com/", "http://a.example.com/"}:           false,
		{"https://a.example.com/", "https://a.example.com:8443/"}:     false,
		{"https://a.example.com/", "https://b.example.com/"}:          false,
		{"https://a.example.com/", "https://a.example.com.evil.test"}: false,
	} {
		from, _ := url.Parse(pair[0])
		to, _ := url.Parse(pair[1])
		if got := sameOrigin(from, to); got != want {
			t.Errorf("from %s to %s: %t", pair[0], pair[1], got)
		}
	}
}

// FuzzLocation checks that no Location leads to another scheme than http and https, from https to
// http, or to a URL with credentials.
func FuzzLocation(f *testing.F) {
	for _, seed := range []string{
		"/x", "//evil.example/", "http://data.example.com/", "https://user@evil.example/", "file:///etc/passwd",
		"\\\\evil.example\\", "/\\evil.example", "?q", "#", "http:x", "https://[::1%25lo]/", "ä", "http://127.0.0.1.:80/",
	} {
		f.Add(true, seed)
		f.Add(false, seed)
	}
	f.Fuzz(func(t *testing.T, secure bool, location string) {
		from := &url.URL{Scheme: "http", Host: "data.example.com", Path: "/"}
		if secure {
			from.Scheme = "https"
		}
		flight := &exchange{client: &Client{cfg: Defaults()}, host: from.Host}
		next, err := flight.redirect(from,
			&http.Response{StatusCode: http.StatusFound, Header: http.Header{"Location": {location}}})
		if err != nil {
			failure := flight.failure(err)
			if failure.Class == 0 || !strings.Contains(failure.Error(), "data.example.com ") {
				t.Fatalf("%q gives %v", location, failure)
			}
			return
		}
		if next.User != nil || next.Scheme != "https" && (next.Scheme != "http" || secure) {
			t.Fatalf("%q leads to %q", location, next)
		}
		if _, err := egress.ParseURL(next.String()); err != nil && !errors.Is(err, egress.ErrDenied) {
			t.Fatal(err)
		}
	})
}

// FuzzFiles checks that no file of credentials crashes the service, and that its content stays out
// of errors.
func FuzzFiles(f *testing.F) {
	f.Add([]byte("- {host: a, headers: {b: c}}"))
	f.Add([]byte("- host: [&a *a]"))
	f.Fuzz(func(t *testing.T, content []byte) {
		secret := append([]byte("s3cr3t-"), content...)
		for _, text := range [][]byte{content, secret} {
			if _, err := parseHeaderFile(text, t.TempDir()); err != nil && strings.Contains(err.Error(), "s3cr3t") {
				t.Fatal(err)
			}
		}
	})
}
