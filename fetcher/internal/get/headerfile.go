package get

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/textproto"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
	"golang.org/x/net/http/httpguts"

	"github.com/kv8s/curl-me-that/fetcher/internal/egress"
)

// headerFile is a list of headers per host in the order of the file.
type headerFile []*headerEntry

// headerEntry selects requests and the credentials that they carry.
type headerEntry struct {
	// Host is a pattern as in --allow-host.
	Host string `yaml:"host"`
	// Namespaces are names or patterns; at least one.
	Namespaces []string `yaml:"namespaces"`
	// Schemes are http and https; none: https.
	Schemes []string `yaml:"schemes"`
	// Ports of the URL; none: the default one of the scheme.
	Ports []int `yaml:"ports"`
	// PathPrefix is the path, or one above it; empty: any.
	PathPrefix string `yaml:"pathPrefix"`
	// Headers are sent with every such request.
	Headers map[string]string `yaml:"headers"`
	// Netrc reports whether the login of the netrc file is sent.
	Netrc bool `yaml:"netrc"`

	host       egress.Pattern
	namespaces []egress.Pattern
}

// find returns the first entry that fits a URL of a namespace.
func (f headerFile) find(namespace string, u *url.URL) *headerEntry {
	for _, e := range f {
		if e.host.Match(u.Hostname()) && e.isFor(namespace) && e.fits(u) {
			return e
		}
	}
	return nil
}

func (e *headerEntry) isFor(namespace string) bool {
	return slices.ContainsFunc(e.namespaces, func(n egress.Pattern) bool { return n.Match(namespace) })
}

// fits reports whether scheme, port and path of a URL are those of the entry.
func (e *headerEntry) fits(u *url.URL) bool {
	if !slices.Contains(e.Schemes, u.Scheme) || !isBelow(u.EscapedPath(), e.PathPrefix) {
		return false
	}
	if len(e.Ports) == 0 {
		return egress.Port(u) == egress.Port(&url.URL{Scheme: u.Scheme})
	}
	return slices.ContainsFunc(e.Ports, func(p int) bool { return strconv.Itoa(p) == egress.Port(u) })
}

// isBelow reports whether an escaped path is a prefix or below it. A path that
// servers may read in two ways is below none.
func isBelow(path, prefix string) bool {
	prefix = strings.TrimSuffix(prefix, "/")
	if prefix == "" {
		return true
	}
	lower := strings.ToLower(path)
	for _, ambiguous := range []string{"..", "/./", "//", "%2e", "%2f", "%5c", "\\"} {
		if strings.Contains(lower, ambiguous) {
			return false
		}
	}
	return path == prefix || strings.HasPrefix(path, prefix+"/")
}

// errHeaderFile means that the file, or an entry of it, has another form.
var errHeaderFile = errors.New("not a YAML list of entries with host, namespaces and headers")

// lineNumber finds the only part of a YAML error that quotes nothing.
var lineNumber = regexp.MustCompile(`line \d+`)

// parseHeaderFile reads one. Errors name an entry or a line, never a value.
func parseHeaderFile(content []byte) (headerFile, error) {
	decoder := yaml.NewDecoder(bytes.NewReader(content))
	decoder.KnownFields(true)
	var file headerFile
	if err := decoder.Decode(&file); err != nil || file == nil {
		if err != nil && lineNumber.MatchString(err.Error()) {
			return nil, fmt.Errorf("%s: %w", lineNumber.FindString(err.Error()), errHeaderFile)
		}
		return nil, errHeaderFile
	}
	if err := decoder.Decode(new(any)); !errors.Is(err, io.EOF) {
		return nil, errors.New("more than one YAML document")
	}
	for i, e := range file {
		if e == nil {
			return nil, fmt.Errorf("entry %d: %w", i+1, errHeaderFile)
		}
		if err := e.compile(); err != nil {
			return nil, fmt.Errorf("entry %d: %w", i+1, err)
		}
	}
	return file, nil
}

func (e *headerEntry) compile() error {
	var err error
	if e.host, err = egress.ParsePattern(e.Host); err != nil {
		return fmt.Errorf("host: %w", err)
	}
	if len(e.Namespaces) == 0 {
		return errors.New("add namespaces, such as namespaces: [team-a], or namespaces: [\"*\"] for all")
	}
	for _, n := range e.Namespaces {
		namespace, err := egress.ParsePattern(n)
		if err != nil {
			return fmt.Errorf("namespaces: %w", err)
		}
		e.namespaces = append(e.namespaces, namespace)
	}
	if err := e.compileURL(); err != nil {
		return err
	}
	if len(e.Headers) == 0 && !e.Netrc {
		return errors.New("no headers, and not netrc: true")
	}
	for name, value := range e.Headers {
		if !isSettable(name) {
			return errors.New("not a header that may be set")
		}
		if value == "" || !httpguts.ValidHeaderFieldValue(value) {
			return errors.New("value is empty or has a control character")
		}
	}
	return nil
}

// compileURL checks scheme, ports and path, and sets the default.
func (e *headerEntry) compileURL() error {
	if len(e.Schemes) == 0 {
		e.Schemes = []string{"https"}
	}
	for _, s := range e.Schemes {
		if s != "http" && s != "https" {
			return errors.New("schemes are http and https")
		}
	}
	for _, p := range e.Ports {
		if p < 1 || p > 65535 {
			return errors.New("ports are from 1 to 65535")
		}
	}
	if e.PathPrefix != "" && (e.PathPrefix[0] != '/' || !isBelow(e.PathPrefix, e.PathPrefix)) {
		return errors.New("pathPrefix begins with a slash and has no dot segments")
	}
	return nil
}

// isSettable reports whether a header may be set: its name is a token (RFC 9110 section
// 5.1), and none of those by which a request is framed, routed, made conditional or partial.
func isSettable(name string) bool {
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

func (e *headerEntry) apply(h http.Header) {
	for name, value := range e.Headers {
		h.Set(name, value)
	}
}
