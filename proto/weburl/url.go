// Package weburl converts URLs to the canonical form in which they are compared and sent. It does not
// depend on Kubernetes, so that all services can use it.
package weburl

import (
	"cmp"
	"fmt"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/net/idna"
)

const (
	// MaxBytes is the maximum length of the canonical form of a requested URL, including the scheme.
	MaxBytes = 2048
	// MaxTargetBytes is the maximum length of the target of a redirect, because presigned URLs are long.
	MaxTargetBytes = 8 << 10
	// MaxHostBytes is the maximum length of a DNS name (RFC 1035 section 2.3.4), without its final dot.
	MaxHostBytes = 253
	// maxLabelBytes is the maximum length of a label before it becomes punycode, which has at most 63 characters and
	// takes a time that grows with the square of the length.
	maxLabelBytes = 4 * 63
)

// Mistakes in a URL for which there is specific advice.
const (
	BadScheme  = "the scheme must be http or https"
	Mistyped   = "the url does not begin with http:// or https:// exactly once"
	HasUser    = "the url contains a user name or a password"
	Hidden     = "the url contains an invisible character, such as a byte order mark or a zero-width space"
	Quoted     = "the url is in quotes or brackets"
	BadPercent = "the url contains a percent sign without two hexadecimal digits"
	Underscore = "the host contains an underscore, which no host name has"
	BadName    = "the host is not an international domain name"
	TooLong    = "the url is longer than 2048 characters"
	NoHost     = "the host is missing"
)

var (
	// schemeStart matches the scheme of a URL (RFC 3986 section 3.1). A colon alone is not enough:
	// data.example.com:8080/x is a host and a port.
	schemeStart = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9+.\-]*://`)
	// opaque matches a well-known scheme without //, which is no host, because no port follows.
	opaque = regexp.MustCompile(`^(?i:about|data|file|ftp|javascript):(?:[^0-9@][^@]*)?$`)
	// mistyped matches http or https where a host is expected, unless it can be a host with a port or path.
	mistyped = regexp.MustCompile(`^(?i:https?)(?:[:;.,\x{ff1a}]?[/\\\x{ff0f}]{2}|[:;\x{ff1a}](?:[^0-9]|$))`)
	// quoted matches a quoted or bracketed URL. A final apostrophe is valid.
	quoted = regexp.MustCompile("^\\\\?[\"'`<(\u2018-\u201f\u00ab]|[\"`\u201c\u201d\u00bb]$")
	// lonePercent matches a percent sign in a path that begins no escape.
	lonePercent = regexp.MustCompile(`^[^?]*%(?:[^0-9A-Fa-f]|[0-9A-Fa-f](?:[^0-9A-Fa-f]|$)|$)`)
	// interfaceName matches the name of a network interface.
	interfaceName = regexp.MustCompile(`^[-_.A-Za-z0-9]+$`)
	// reference matches every text: scheme, authority, path and query (RFC 3986 appendix B).
	reference = regexp.MustCompile(`(?s)^(?:([A-Za-z][A-Za-z0-9+.\-]*):)?(//[^/?#]*)?([^?#]*)(\?[^#]*)?`)
)

// Canonical returns the canonical form of raw, or the reason why there is none. A URL without a
// scheme gets the default one. Scheme and host become lower case, an international host punycode, and
// a fragment is dropped. Path and query stay as written, because they belong to the server, except
// bytes that a request line cannot have, which are escaped. The result is ASCII. Canonical is
// idempotent.
func Canonical(raw, defaultScheme string) (canonical, wrong string) {
	if strings.ContainsFunc(raw, Invisible) {
		return "", Hidden
	}
	if len(raw) > MaxBytes {
		return "", TooLong
	}
	raw, _, _ = strings.Cut(raw, "#")
	scheme, rest := defaultScheme, raw
	if start := schemeStart.FindString(raw); start != "" {
		scheme, rest = strings.TrimSuffix(start, "://"), raw[len(start):]
	}
	switch end := strings.IndexAny(rest+"/", "/?"); {
	case quoted.MatchString(raw):
		return "", Quoted
	case mistyped.MatchString(rest):
		return "", Mistyped
	case opaque.MatchString(raw):
		return "", BadScheme
	case strings.Contains(rest, "%") && lonePercent.MatchString(rest[end:]):
		return "", BadPercent
	default:
		canonical, wrong = assemble(scheme, rest[:end], rest[end:])
	}
	if len(canonical) > MaxBytes {
		return "", TooLong
	}
	return canonical, wrong
}

// Resolve returns the canonical form of a Location, relative to the canonical URL base (RFC 3986
// section 5.2), or the reason why there is none. Servers write odd ones, so an invisible character, a
// lone percent sign and an empty port are no mistakes here.
func Resolve(base, location string) (canonical, wrong string) {
	location, _, _ = strings.Cut(location, "#")
	if len(location) > MaxTargetBytes {
		return "", TooLong
	}
	from, to := reference.FindStringSubmatch(base), reference.FindStringSubmatch(location)
	if to[1]+to[2] == "//" { // browsers and curl take the start of its path for the host
		return "", NoHost
	}
	// Without RawPath, package url takes the path for a decoded one and returns it byte for byte.
	target := (&url.URL{Scheme: from[1], Host: from[2][2:], Path: from[3], RawQuery: from[4]}).
		ResolveReference(&url.URL{Scheme: to[1], Host: strings.TrimPrefix(to[2], "//"), Path: to[3], RawQuery: to[4]})
	canonical, wrong = assemble(target.Scheme, strings.TrimSuffix(target.Host, ":"), target.Path+target.RawQuery)
	if len(canonical) > MaxTargetBytes {
		return "", TooLong
	}
	return canonical, wrong
}

// WithoutQuery returns a URL without userinfo, query and fragment, which may hold secrets (empty: raw is no URL).
func WithoutQuery(raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		return ""
	}
	text := (&url.URL{Scheme: u.Scheme, Host: u.Host}).String() + cmp.Or(u.RawPath, u.EscapedPath())
	if u.RawQuery != "" {
		text += "?…"
	}
	return text
}

// Invisible reports whether a character shows nothing.
func Invisible(r rune) bool {
	return unicode.In(r, unicode.Cc, unicode.Cf, unicode.Z, unicode.Other_Default_Ignorable_Code_Point)
}

// assemble returns the canonical form of a URL in parts.
func assemble(scheme, authority, rest string) (canonical, wrong string) {
	scheme = strings.ToLower(scheme)
	if scheme != "http" && scheme != "https" {
		return "", BadScheme
	}
	host, wrong := canonicalHost(authority)
	if wrong != "" {
		return "", wrong
	}
	return scheme + "://" + host + escape(rest), ""
}

// escape escapes the bytes that a request line cannot have.
func escape(s string) string {
	var text strings.Builder
	for i := range len(s) {
		if c := s[i]; c <= ' ' || c > '~' {
			fmt.Fprintf(&text, "%%%02X", c)
		} else {
			text.WriteByte(c)
		}
	}
	return text.String()
}

// canonicalHost returns host and port, or the mistake in them.
func canonicalHost(authority string) (host, wrong string) {
	if strings.Contains(authority, "@") {
		return "", HasUser
	}
	name, port := authority, ""
	colon := strings.LastIndexByte(authority, ':')
	if colon > strings.LastIndexByte(authority, ']') {
		name, port = authority[:colon], authority[colon+1:]
	}
	name, wrong = canonicalName(name)
	switch {
	case wrong != "":
		return "", wrong
	case strings.HasSuffix(authority, ":"):
		return "", "the port is missing"
	case port == "":
		return name, ""
	}
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil || number == 0 {
		return "", "the port is not a number from 1 to 65535"
	}
	return name + ":" + strconv.FormatUint(number, 10), ""
}

// canonicalName returns a host without its port, or the mistake in it.
func canonicalName(name string) (canonical, wrong string) {
	if inner, found := strings.CutPrefix(name, "["); found {
		return canonicalAddress(inner)
	}
	if u, err := url.Parse("//" + name); err == nil && strings.Contains(name, "%") {
		name = u.Host // unescaped, and not ASCII
	}
	canonical = strings.ToLower(name)
	if strings.IndexFunc(name, func(r rune) bool { return r >= utf8.RuneSelf }) >= 0 {
		if slices.ContainsFunc(strings.FieldsFunc(name, dot), func(label string) bool { return len(label) > maxLabelBytes }) {
			return "", BadName
		}
		var err error
		// Other names become ASCII, too, such as a Roman numeral that looks like an l.
		canonical, err = idna.Lookup.ToASCII(name)
		if err != nil || !strings.Contains(canonical, "xn--") || strings.ContainsRune(name, utf8.RuneError) {
			return "", BadName
		}
	}
	odd := strings.Trim(canonical, "abcdefghijklmnopqrstuvwxyz0123456789.-_")
	switch {
	case canonical == "":
		return "", NoHost
	case odd != "":
		return "", "the host contains " + odd[:1]
	case strings.Contains(canonical, "_"):
		return "", Underscore
	case !HostName(strings.TrimSuffix(canonical, ".")):
		return "", "the host is not a host name"
	}
	return canonical, ""
}

// HostName reports whether text is a DNS name in lower case without a final dot. An IPv4 address has that
// form, too.
func HostName(text string) bool {
	for label := range strings.SplitSeq(text, ".") { // 1 to 63 letters, digits and inner hyphens (RFC 1035 section 2.3.4)
		if label == "" || len(label) > 63 || strings.Trim(label, "-") != label ||
			strings.ContainsFunc(label, func(r rune) bool { return r != '-' && (r < '0' || r > '9') && (r < 'a' || r > 'z') }) {
			return false
		}
	}
	return len(text) <= MaxHostBytes
}

// dot reports whether a character separates labels (RFC 3490 section 3.1).
func dot(r rune) bool { return strings.ContainsRune(".\u3002\uff0e\uff61", r) }

// canonicalAddress returns an IPv6 address, which text has without the first bracket, or the mistake in it.
func canonicalAddress(text string) (canonical, wrong string) {
	text, closed := strings.CutSuffix(text, "]")
	text, zone, zoned := strings.Cut(text, "%25") // RFC 6874 section 2
	addr, err := netip.ParseAddr(text)
	switch {
	case err != nil || !closed || !addr.Is6() || addr.Zone() != "":
		return "", "the host is not an IPv6 address"
	case !zoned:
		return "[" + strings.ToLower(text) + "]", ""
	case !interfaceName.MatchString(zone):
		return "", "the host is not an IPv6 address with a zone"
	}
	return "[" + strings.ToLower(text) + "%25" + zone + "]", ""
}
