package weburl_test

import (
	"strings"
	"testing"

	"github.com/kv8s/curl-me-that/proto/weburl"
)

func TestResolve(t *testing.T) {
	const base = "https://e.example.com:8443/a%2Fb/{c}/d?q"
	long := strings.Repeat("x", weburl.MaxTargetBytes)
	for location, want := range map[string]string{
		"x":                           "https://e.example.com:8443/a%2Fb/{c}/x",
		"../x y":                      "https://e.example.com:8443/a%2Fb/x%20y",
		"?r={s}":                      "https://e.example.com:8443/a%2Fb/{c}/d?r={s}",
		"/x\ty?openid profile":        "https://e.example.com:8443/x%09y?openid%20profile",
		"/\xe4":                       "https://e.example.com:8443/%E4",
		"/100%/{x}?50%":               "https://e.example.com:8443/100%/{x}?50%",
		"../{a}/./b%2F../c":           "https://e.example.com:8443/a%2Fb/{a}/b%2F../c",
		"#f":                          base,
		"//F.example.com":             "https://f.example.com",
		"HTTP://f.example.com:/x":     "http://f.example.com/x",
		"http://f.example.com:080/":   "http://f.example.com:80/",
		"http://b\u00fccher.example/": "http://xn--bcher-kva.example/",
		"///f.example.com/x":          weburl.NoHost,
		"//?q":                        weburl.NoHost,
		"x:y":                         weburl.BadScheme,
		"https:/x":                    weburl.NoHost,
		"//u@f.example.com":           weburl.HasUser,
		"//f_1.example.com":           weburl.Underscore,
		"/" + long:                    weburl.TooLong,
		long + "/" + long + "/../..":  weburl.TooLong,
		"x#" + long:                   "https://e.example.com:8443/a%2Fb/{c}/x",
		// Punycode of long labels would take seconds.
		"//a." + strings.Repeat("\u00fc", 127) + "\u3002example": weburl.BadName,
		"//" + strings.Repeat("%C3%BC", 127) + ".example":        weburl.BadName,
	} {
		if got, wrong := weburl.Resolve(base, location); got+wrong != want {
			t.Errorf("%.30s: got %q, %q, want %q", location, got, wrong, want)
		}
	}
}
