// Package weburl converts URLs to the canonical form in which they are compared. It does not depend
// on Kubernetes, so that all services can use it.
package weburl

import (
	"net/url"
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
	scheme, rest, found := cutScheme(raw)
	if !found {
		scheme, rest = defaultScheme, raw
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
		// The text of err quotes parts of the url, so it is not used.
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

// cutScheme splits a URL at "://" if a scheme precedes it (RFC 3986 section 3.1). A colon alone is
// not enough: data.example.com:8080/x is a host and a port.
func cutScheme(raw string) (scheme, rest string, found bool) {
	scheme, rest, found = strings.Cut(raw, "://")
	if !found || scheme == "" {
		return "", raw, false
	}
	for i := range len(scheme) {
		c := scheme[i] | 0x20
		isLetter := 'a' <= c && c <= 'z'
		if !isLetter && (i == 0 || !strings.ContainsRune("0123456789+-.", rune(scheme[i]))) {
			return "", raw, false
		}
	}
	return strings.ToLower(scheme), rest, true
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
		if !isHostName(name) {
			return "", "the host is not a host name"
		}
		return name, ""
	}
	text, zone, zoned := strings.Cut(name, "%") // url.Parse takes nothing but an IPv6 address in brackets
	if !zoned {
		return "[" + strings.ToLower(text) + "]", ""
	}
	if strings.IndexFunc(zone, isNoZone) >= 0 {
		return "", "the host is not an IPv6 address with a zone"
	}
	return "[" + strings.ToLower(text) + "%25" + zone + "]", "" // RFC 6874 section 2
}

// isNoZone reports whether a character is invalid in the name of a network interface.
func isNoZone(c rune) bool {
	return !('a' <= c|0x20 && c|0x20 <= 'z' || '0' <= c && c <= '9' || strings.ContainsRune("-_.", c))
}

// isHostName reports whether name can be a DNS name: labels of letters, digits, hyphens and
// underscores, none of them empty except the root.
func isHostName(name string) bool {
	name = strings.TrimSuffix(name, ".")
	if len(name) > MaxHostBytes {
		return false
	}
	for label := range strings.SplitSeq(name, ".") {
		if label == "" || len(label) > 63 {
			return false
		}
		for _, c := range label {
			if !('a' <= c && c <= 'z' || '0' <= c && c <= '9' || c == '-' || c == '_') {
				return false
			}
		}
	}
	return true
}
