package get

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/textproto"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/kv8s/curl-me-that/fetcher/internal/egress"
)

// headerFile is a list of headers per host in the order of the file.
type headerFile []*headerEntry

// headerEntry says what to send to the hosts of a pattern.
type headerEntry struct {
	// Host is a pattern as in --allow-host.
	Host string `yaml:"host"`
	// Namespaces are names or patterns; none: all.
	Namespaces []string `yaml:"namespaces"`
	// Headers are sent with every request to the host.
	Headers map[string]string `yaml:"headers"`

	host       egress.Pattern
	namespaces []egress.Pattern
}

// find returns the first entry that fits.
func (f headerFile) find(namespace, host string) *headerEntry {
	for _, e := range f {
		if e.host.Match(host) && e.isFor(namespace) {
			return e
		}
	}
	return nil
}

func (e *headerEntry) isFor(namespace string) bool {
	for _, n := range e.namespaces {
		if n.Match(namespace) {
			return true
		}
	}
	return len(e.namespaces) == 0
}

// Errors of a header file name an entry or a line, never a value.
var (
	errHeaderFile   = errors.New("not a YAML list of entries with host, namespaces and headers")
	errNoHeaders    = errors.New("no headers")
	errHeaderName   = errors.New("not a header that may be set")
	errHeaderValue  = errors.New("value is empty or has a control character")
	errHeaderSecond = errors.New("more than one YAML document")
)

// lineNumber finds the only part of a YAML error that quotes nothing.
var lineNumber = regexp.MustCompile(`line \d+`)

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
		return nil, errHeaderSecond
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
	for _, n := range e.Namespaces {
		namespace, err := egress.ParsePattern(n)
		if err != nil {
			return fmt.Errorf("namespaces: %w", err)
		}
		e.namespaces = append(e.namespaces, namespace)
	}
	if len(e.Headers) == 0 {
		return errNoHeaders
	}
	for name, value := range e.Headers {
		if !isSettable(name) {
			return errHeaderName
		}
		if value == "" || strings.ContainsFunc(value, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }) {
			return errHeaderValue
		}
	}
	return nil
}

// isSettable refuses names that are not tokens (RFC 9110 section 5.1), and
// those by which a request is framed, routed, made conditional or partial.
func isSettable(name string) bool {
	if name == "" || strings.ContainsFunc(name, notToken) {
		return false
	}
	switch name = textproto.CanonicalMIMEHeaderKey(name); name {
	case "Host", "Connection", "Content-Length", "Transfer-Encoding", "Te", "Trailer", "Upgrade",
		"Keep-Alive", "Expect", "Accept-Encoding", "Range", "Referer", "Cookie":
		return false
	}
	return !strings.HasPrefix(name, "If-") && !strings.HasPrefix(name, "Proxy-")
}

func notToken(r rune) bool {
	return !strings.ContainsRune("!#$%&'*+-.^_`|~", r) &&
		(r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z')
}

func (e *headerEntry) apply(h http.Header) {
	for name, value := range e.Headers {
		h.Set(name, value)
	}
}
