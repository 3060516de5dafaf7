package get

import (
	"errors"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/kv8s/curl-me-that/fetcher/internal/egress"
)

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
