package get

import (
	"strings"
	"testing"
)

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
		if _, err := parseHeaderFile([]byte(content), ""); err == nil || err.Error() != want {
			t.Errorf("%q: %v, want %s", content, err, want)
		}
	}
}

// FuzzFiles checks that no file of credentials crashes the service, and that its content stays out of errors.
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
