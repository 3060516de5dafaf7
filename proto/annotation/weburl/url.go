// Package weburl converts URLs to the canonical form in which they are compared. It does not depend
// on Kubernetes, so that all services can use it.
package weburl

import (
	"net/url"
	"regexp"
	"strconv"
	"strings"
)

// MaxBytes is the maximum length of one URL, including the scheme.
const MaxBytes = 2048

// Mistakes in a URL for which there is specific advice.
const (
	// BadScheme means a scheme such as ftp.
	BadScheme = "the scheme must be http or https"
	// HasUser means a URL with userinfo.
	HasUser = "the url contains a user name or a password"
	// BadText means characters that need escaping.
	BadText = "the url contains characters other than printable ASCII"
	// TooLong means more than MaxBytes.
	TooLong = "the url is longer than 2048 characters"
	// NoHost means a URL without a host.
	NoHost = "the host is missing"
)

// MaxHostBytes is the maximum length of a DNS name (RFC 1035 section 2.3.4), without its final dot.
const MaxHostBytes = 253

var (
	// schemeStart matches the scheme of a URL (RFC 3986 section 3.1). A colon alone is not enough:
	// data.example.com:8080/x is a host and a port.
	schemeStart = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9+.\-]*://`)
	// hostName matches possible DNS names: labels of letters, digits, hyphens and underscores, none of
	// them empty except the root.
	hostName = regexp.MustCompile(`^(?:[a-z0-9_-]{1,63}\.)*[a-z0-9_-]{1,63}\.?$`)
	// interfaceName matches the name of a network interface.
	interfaceName = regexp.MustCompile(`^[-_.A-Za-z0-9]*$`)
)

// Canonical returns the canonical form of raw, or the reason why there is none. A URL without a
// scheme gets the default one. Scheme and host become lower case and a fragment is dropped; path
// and query stay as written, because they belong to the server. Canonical is idempotent.
func Canonical(raw, defaultScheme string) (canonical, wrong string) {
	for i := range len(raw) {
		if raw[i] <= ' ' || raw[i] > '~' {
			return "", BadText
		}
	}
	if len(raw) > MaxBytes {
		return "", TooLong
	}
	raw, _, _ = strings.Cut(raw, "#")
	scheme, rest := defaultScheme, raw
	if start := schemeStart.FindString(raw); start != "" {
		scheme, rest = strings.ToLower(strings.TrimSuffix(start, "://")), raw[len(start):]
	}
	if scheme != "http" && scheme != "https" {
		return "", BadScheme
	}
	end := strings.IndexAny(rest, "/?")
	if end < 0 {
		end = len(rest)
	}
	parsed, err := url.Parse(scheme + "://" + rest)
	if err != nil {
		// err quotes parts of the URL, so its text is not used.
		return "", "the url cannot be parsed"
	}
	if parsed.User != nil {
		return "", HasUser
	}
	host, wrong := canonicalHost(parsed)
	if wrong != "" {
		return "", wrong
	}
	canonical = scheme + "://" + host + rest[end:]
	if len(canonical) > MaxBytes {
		return "", TooLong
	}
	return canonical, ""
}

// canonicalHost returns host and port of u, or the mistake in them.
func canonicalHost(u *url.URL) (host, wrong string) {
	if strings.HasSuffix(u.Host, ":") {
		return "", "the port is missing"
	}
	host, wrong = canonicalName(u)
	if wrong != "" || u.Port() == "" {
		return host, wrong
	}
	port, err := strconv.ParseUint(u.Port(), 10, 16)
	if err != nil || port == 0 {
		return "", "the port is not a number from 1 to 65535"
	}
	return host + ":" + strconv.FormatUint(port, 10), ""
}

// canonicalName returns the host of u without its port, or the mistake in it.
func canonicalName(u *url.URL) (name, wrong string) {
	name = u.Hostname()
	if name == "" {
		return "", NoHost
	}
	if !strings.HasPrefix(u.Host, "[") {
		name = strings.ToLower(name)
		if len(strings.TrimSuffix(name, ".")) > MaxHostBytes || !hostName.MatchString(name) {
			return "", "the host is not a host name"
		}
		return name, ""
	}
	text, zone, zoned := strings.Cut(name, "%") // url.Parse accepts only an IPv6 address in brackets
	if !zoned {
		return "[" + strings.ToLower(text) + "]", ""
	}
	if !interfaceName.MatchString(zone) {
		return "", "the host is not an IPv6 address with a zone"
	}
	return "[" + strings.ToLower(text) + "%25" + zone + "]", "" // RFC 6874 section 2
}
