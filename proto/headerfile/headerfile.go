// Package headerfile has the rules that keeper and fetcher share: the allowed headers and paths of an
// entry in a header file, and its format.
package headerfile

import (
	"net/textproto"
	"regexp"
	"strings"

	"golang.org/x/net/http/httpguts"
)

// Entry is an entry of a header file without further files. keeper compiles entries from the Secrets of
// teams as JSON, and the operator's entries in YAML have the same fields.
type Entry struct {
	// Source is the name of the entry in messages (empty: its number).
	Source string `json:"source,omitempty" yaml:"source"`
	// Host is a name, or in the operator's file a pattern as in --allow-host.
	Host string `json:"host" yaml:"host"`
	// Namespaces are names or patterns; at least one.
	Namespaces []string `json:"namespaces" yaml:"namespaces"`
	// Ports of the URL; default: the default port of the scheme.
	Ports []int `json:"ports,omitempty" yaml:"ports"`
	// PathPrefix is the path or one of its parents (empty means any).
	PathPrefix string `json:"pathPrefix,omitempty" yaml:"pathPrefix"`
	// Headers are sent with every matching request.
	Headers map[string]string `json:"headers,omitempty" yaml:"headers"`
	// Certificate of the client, its Key and the only trusted Authorities are PEM (empty means none).
	Certificate string `json:"certificate,omitempty" yaml:"certificate"`
	Key         string `json:"key,omitempty" yaml:"key"`
	Authorities string `json:"authorities,omitempty" yaml:"authorities"`
}

// TeamKey is the key of the file in the Secret of the release.
const TeamKey = "headers.json"

// ValidValue reports whether value is a valid header value.
func ValidValue(value string) bool { return value != "" && httpguts.ValidHeaderFieldValue(value) }

// Settable reports whether a header may be set: its name is a token (RFC 9110 section 5.1), and
// not one that affects framing, routing, conditions or ranges.
func Settable(name string) bool {
	if !httpguts.ValidHeaderFieldName(name) {
		return false
	}
	switch name = textproto.CanonicalMIMEHeaderKey(name); name {
	case "Host", "Connection", "Content-Length", "Transfer-Encoding", "Te", "Trailer", "Upgrade",
		"Keep-Alive", "Expect", "Accept-Encoding", "Range", "Referer", "Cookie":
		return false
	}
	return !strings.HasPrefix(name, "If-") && !strings.HasPrefix(name, "Proxy-")
}

// Below reports whether an escaped path is a prefix or below it. A path that servers may read in
// two ways is never below a prefix.
func Below(path, prefix string) bool {
	prefix = strings.TrimSuffix(prefix, "/")
	if prefix == "" {
		return true
	}
	return plainPath.MatchString(path) && (path == prefix || strings.HasPrefix(path, prefix+"/"))
}

// plainPath matches a path that every server reads in the same way. It permits escapes only for
// printable ASCII characters that need one, and these as written, except percent sign and backslash. A dot may not be
// next to a dot or a blank, because some servers remove these from a segment.
var plainPath = regexp.MustCompile(`^(?:/(?:` + plainGap + plainChar + `)+` + plainGap + `)+/?$`)

const (
	plainChar = `(?:[-A-Za-z0-9_~!$&'()*+,=:@\[\]"<>^{|}\x60]|%(?i:2[23]|3[cef]|5[bde]|60|7[bcd]))`
	plainGap  = `(?:\.|(?:%20)*)`
)
