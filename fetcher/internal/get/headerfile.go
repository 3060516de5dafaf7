package get

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/kv8s/curl-me-that/fetcher/internal/egress"
	"github.com/kv8s/curl-me-that/proto/headerfile"
	"github.com/kv8s/curl-me-that/proto/process/reload"
)

// headerFile is a list of headers per host in file order.
type headerFile struct {
	entries []*headerEntry
	// byHost has the numbers of the entries that name one host, and patterns the numbers of all others. A file of
	// teams may have thousands of entries, and every GET looks for its own.
	byHost   map[string][]uint32
	patterns []uint32
}

// hostEntries are the entries of a header file that one namespace may use for one host. Equal
// values are the same entries of the same file. The zero value has none.
type hostEntries struct {
	file *headerFile
	// numbers of the entries in file order, four bytes each.
	numbers string
}

// headerEntry selects requests and their credentials.
type headerEntry struct {
	headerfile.Entry `yaml:",inline"`
	// Schemes are http and https; default: https.
	Schemes []string `yaml:"schemes"`
	// OAuth2 has the settings to obtain the bearer token.
	OAuth2 *oauth2Client `yaml:"oauth2"`
	// BearerFile is the name of a file with the bearer token. Like all files of an entry it is in the
	// directory of the header file, or below.
	BearerFile string `yaml:"bearerFile"`
	// ClientCertificate is shown to the server.
	ClientCertificate *clientCertificate `yaml:"clientCertificate"`
	// CAFile is the name of a file with the only trusted authorities.
	CAFile string `yaml:"caFile"`

	// text has all fields of the entry.
	text       string
	host       egress.Pattern
	namespaces []egress.Pattern
	bearer     *reload.File[string]
	tokens     *tokens
	secret     *reload.File[string]
	identity   *reload.File[*clientIdentity]
	// fixed is the identity in the entry itself, as PEM.
	fixed *clientIdentity
}

// tls returns the current identity (nil if there is none).
func (h *headerEntry) tls() *clientIdentity { return cmp.Or(h.identity.Value(), h.fixed) }

type clientCertificate struct {
	CertFile string `yaml:"certFile"`
	KeyFile  string `yaml:"keyFile"`
}

// poll reads the files of the entries again.
func (h *headerFile) poll(report func(path string, err error)) {
	for _, e := range h.entries {
		e.bearer.Poll(report)
		e.secret.Poll(report)
		e.identity.Poll(report)
	}
}

// forHost returns the entries for a host that a namespace may use.
func (h *headerFile) forHost(namespace, host string) hostEntries {
	var found []byte
	for _, i := range slices.Sorted(slices.Values(slices.Concat(h.byHost[host], h.patterns))) {
		if e := h.entries[i]; e.host.Match(host) && e.isFor(namespace) {
			found = binary.BigEndian.AppendUint32(found, i)
		}
	}
	if found == nil {
		return hostEntries{}
	}
	return hostEntries{file: h, numbers: string(found)}
}

// all iterates over the entries in file order.
func (h hostEntries) all(yield func(*headerEntry) bool) {
	for i := range slices.Chunk([]byte(h.numbers), 4) {
		if !yield(h.file.entries[binary.BigEndian.Uint32(i)]) {
			return
		}
	}
}

// find returns the first entry that matches a URL of the host.
func (h hostEntries) find(u *url.URL) *headerEntry {
	for e := range h.all {
		if e.fits(u) {
			return e
		}
	}
	return nil
}

// sendsCredential reports whether the server gets a credential from the entry.
func (h *headerEntry) sendsCredential() bool {
	for name := range h.Headers {
		name = http.CanonicalHeaderKey(name)
		if name != "User-Agent" && name != "Accept" {
			return true
		}
	}
	identity := h.tls()
	return h.bearer != nil || h.tokens != nil || identity != nil && len(identity.Certificates) > 0
}

func (h *headerEntry) isFor(namespace string) bool {
	return slices.ContainsFunc(h.namespaces, func(n egress.Pattern) bool { return n.Match(namespace) })
}

// fits reports whether scheme, port and path of a URL match the entry.
func (h *headerEntry) fits(u *url.URL) bool {
	if !slices.Contains(h.Schemes, u.Scheme) || !headerfile.Below(cmp.Or(u.RawPath, u.EscapedPath()), h.PathPrefix) {
		return false
	}
	if len(h.Ports) == 0 {
		return egress.Port(u) == egress.Port(&url.URL{Scheme: u.Scheme})
	}
	return slices.ContainsFunc(h.Ports, func(p int) bool { return strconv.Itoa(p) == egress.Port(u) })
}

// errHeaderFile means that the file, or one of its entries, has the wrong format.
var errHeaderFile = errors.New("not a YAML list of entries with host, namespaces and headers")

// lineNumber extracts the line number from a YAML error, because the rest may quote the file.
var lineNumber = regexp.MustCompile(`line \d+`)

// parseHeaderFile parses a header file and opens the files of its entries, which lie in dir. Errors
// name an entry or a line, never a value.
func parseHeaderFile(content []byte, dir string) (*headerFile, error) {
	decoder := yaml.NewDecoder(bytes.NewReader(content))
	decoder.KnownFields(true)
	var entries []*headerEntry
	if err := decoder.Decode(&entries); err != nil || entries == nil {
		if err != nil && lineNumber.MatchString(err.Error()) {
			return nil, fmt.Errorf("%s: %w", lineNumber.FindString(err.Error()), errHeaderFile)
		}
		return nil, errHeaderFile
	}
	if err := decoder.Decode(new(any)); !errors.Is(err, io.EOF) {
		return nil, errors.New("more than one YAML document")
	}
	return compileEntries(entries, dir)
}

// parseTenantFile parses the file that keeper compiles from the Secrets of teams. YAML would reject some
// characters that JSON permits, so one team could break the file for all. Errors name an entry, never a value.
func parseTenantFile(content []byte) (*headerFile, error) {
	var entries []*headerEntry
	if err := json.Unmarshal(content, &entries); err != nil && len(content) > 0 {
		return nil, errors.New("not a JSON list of entries") // the error may quote the file
	}
	return compileEntries(entries, "")
}

func compileEntries(entries []*headerEntry, dir string) (*headerFile, error) {
	file := &headerFile{entries: entries, byHost: map[string][]uint32{}}
	for i, e := range entries {
		if e == nil {
			return nil, fmt.Errorf("entry %d: %w", i+1, errHeaderFile)
		}
		text, err := json.Marshal(e)
		e.text, e.Source = string(text), cmp.Or(e.Source, fmt.Sprintf("entry %d of the header file", i+1))
		if err := cmp.Or(err, e.compile(), e.open(dir)); err != nil {
			return nil, fmt.Errorf("entry %d: %w", i+1, err)
		}
		if host := string(e.host); strings.Contains(host, "*") {
			file.patterns = append(file.patterns, uint32(i))
		} else {
			file.byHost[host] = append(file.byHost[host], uint32(i))
		}
	}
	return file, nil
}

// compile validates the entry, and sets the defaults.
func (h *headerEntry) compile() (err error) {
	if h.host, err = egress.ParsePattern(h.Host); err != nil {
		return fmt.Errorf("host: %w", err)
	}
	for _, n := range h.Namespaces {
		namespace, err := egress.ParsePattern(n)
		if err != nil {
			return fmt.Errorf("namespaces: %w", err)
		}
		h.namespaces = append(h.namespaces, namespace)
	}
	if len(h.Schemes) == 0 {
		h.Schemes = []string{"https"}
	}
	c := h.ClientCertificate
	switch {
	case len(h.Namespaces) == 0:
		return errors.New("add namespaces, such as namespaces: [team-a], or namespaces: [\"*\"] for all")
	case slices.ContainsFunc(h.Schemes, func(s string) bool { return s != "http" && s != "https" }):
		return errors.New("schemes must be http or https")
	case slices.ContainsFunc(h.Ports, func(p int) bool { return p < 1 || p > 65535 }):
		return errors.New("ports must be from 1 to 65535")
	case h.PathPrefix != "" && (h.PathPrefix[0] != '/' || !headerfile.Below(h.PathPrefix, h.PathPrefix)):
		return errors.New("pathPrefix must start with a slash and mean the same to every server")
	case h.OAuth2 != nil && h.BearerFile != "":
		return errors.New("oauth2 and bearerFile exclude each other")
	case c != nil && (c.CertFile == "" || c.KeyFile == ""):
		return errors.New("clientCertificate: add certFile and keyFile")
	case len(h.Headers) == 0 && h.OAuth2 == nil && c == nil &&
		h.BearerFile+h.CAFile+h.Certificate+h.Key+h.Authorities == "":
		return errors.New("no headers, oauth2, bearerFile, clientCertificate or caFile")
	}
	for name, value := range h.Headers {
		if !headerfile.Settable(name) {
			return errors.New("not a header that may be set")
		}
		if !headerfile.ValidValue(value) {
			return errors.New("value is empty or has a control character")
		}
	}
	if h.OAuth2 != nil {
		return h.OAuth2.compile()
	}
	return nil
}

// open opens the files of the entry. Errors do not contain their names.
func (h *headerEntry) open(dir string) error {
	var failed error
	at := func(name string) string {
		if name == "" {
			return ""
		}
		if !filepath.IsLocal(name) {
			failed = errors.New("files must be in the directory of the header file, or below")
		}
		return filepath.Join(dir, name)
	}
	check := func(field string, err error) {
		if err != nil && failed == nil {
			failed = fmt.Errorf("%s: %w", field, errors.Unwrap(err))
		}
	}
	var err error
	if h.BearerFile != "" {
		h.bearer, err = openSecret(at(h.BearerFile))
		check("bearerFile", err)
	}
	if h.OAuth2 != nil {
		h.secret, err = openSecret(at(h.OAuth2.ClientSecretFile))
		check("oauth2: clientSecretFile", err)
		h.tokens = newTokens(*h.OAuth2, h.secret)
	}
	if h.ClientCertificate != nil || h.CAFile != "" {
		c := cmp.Or(h.ClientCertificate, &clientCertificate{})
		h.identity, err = openIdentity(at(c.CertFile), at(c.KeyFile), at(h.CAFile))
		check("clientCertificate or caFile", err)
	}
	if h.Certificate+h.Key+h.Authorities != "" {
		h.fixed, err = newIdentity([]byte(h.Certificate), []byte(h.Key), []byte(h.Authorities))
		failed = cmp.Or(failed, err)
	}
	return failed
}
