package weburl_test

import (
	"strings"
	"testing"

	"github.com/kv8s/curl-me-that/proto/weburl"
)

func TestHostOf(t *testing.T) {
	for url, want := range map[string]string{
		"https://Data.Example.com:8080/x?q":                 "data.example.com",
		"http://127.0.0.1:18080/x":                          weburl.HiddenHost,
		"https://[2001:db8::1]/":                            weburl.HiddenHost,
		"https://[fe80::1%25eth0]:443/":                     weburl.HiddenHost,
		"https://[::ffff:10.0.0.1]/":                        weburl.HiddenHost,
		"https://10.0.0.1.example.com/":                     "10.0.0.1.example.com",
		"https://" + strings.Repeat("a", 300) + ".example/": strings.Repeat("a", 253),
		"https://" + strings.Repeat("é", 200) + "/":         strings.Repeat("é", 126), // not cut within a character
		"https:///x": "",
		"://":        "",
	} {
		if got := weburl.HostOf(url); got != want {
			t.Errorf("HostOf(%q) = %q, want %q", url, got, want)
		}
	}
}

func TestHostIs(t *testing.T) {
	for _, c := range []struct {
		url, host string
		want      bool
	}{
		{"https://Data.Example.com:8080/x", "data.EXAMPLE.com", true},
		{"https://data.example.com/", "example.com", false},
		{"https://[2001:db8::1]:443/", "2001:DB8:0::1", true},
		{"https://[::ffff:10.0.0.1]/", "10.0.0.1", true},
		{"https://[2001:db8::1]/", "[2001:db8::1]", true},
		{"https://[2001:db8::1]/", "2001:db8::2", false},
		{"https://[2001:db8::1]/", weburl.HiddenHost, true},
		{"https://data.example.com/", "10.0.0.1", false},
		{"https://data.example.com/", "0.0.0.0", false},
		{"://", "10.0.0.1", false},
	} {
		if got := weburl.HostIs(c.url, c.host); got != c.want {
			t.Errorf("%s at %s: %t", c.host, c.url, got)
		}
	}
}
