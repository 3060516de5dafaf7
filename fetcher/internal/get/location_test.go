package get

import (
	"errors"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/kv8s/curl-me-that/fetcher/internal/egress"
)

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
		end := flight.redirect(from,
			&http.Response{StatusCode: http.StatusFound, Header: http.Header{"Location": {location}}})
		next := end.next
		if end.err != nil {
			failure := flight.failure(end)
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
