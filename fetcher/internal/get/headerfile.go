package get

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"

	"go.yaml.in/yaml/v3"

	"github.com/kv8s/curl-me-that/fetcher/internal/egress"
	"github.com/kv8s/curl-me-that/proto/headerfile"
	"github.com/kv8s/curl-me-that/proto/process/reload"
)

// headerFile is a list of headers per host in file order.
type headerFile struct{ entries []*headerEntry }

// hostEntries are the entries of a header file that one namespace may use for one host. Equal
// values are the same entries of the same file. The zero value has none.
type hostEntries struct {
	file *headerFile
	// marks has one byte per entry of the file: 1 if it may be used.
	marks string
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
func (e *headerEntry) tls() *clientIdentity { return cmp.Or(e.identity.Value(), e.fixed) }

type clientCertificate struct {
	CertFile string `yaml:"certFile"`
	KeyFile  string `yaml:"keyFile"`
}

// look reads the files of the entries again.
func (f *headerFile) look(report func(path string, err error)) {
	for _, e := range f.entries {
		e.bearer.Poll(report)
		e.secret.Poll(report)
		e.identity.Poll(report)
	}
}

// forHost returns the entries for a host that a namespace may use.
func (f *headerFile) forHost(namespace, host string) hostEntries {
	marks := make([]byte, len(f.entries))
	for i, e := range f.entries {
		if e.host.Match(host) && e.isFor(namespace) {
			marks[i] = 1
		}
	}
	if !slices.Contains(marks, 1) {
		return hostEntries{}
	}
	return hostEntries{file: f, marks: string(marks)}
}

// find returns the first entry that matches a URL of the host.
func (h hostEntries) find(u *url.URL) *headerEntry {
	for i, mark := range []byte(h.marks) {
		if e := h.file.entries[i]; mark == 1 && e.fits(u) {
			return e
		}
	}
	return nil
}

func (e *headerEntry) isFor(namespace string) bool {
	return slices.ContainsFunc(e.namespaces, func(n egress.Pattern) bool { return n.Match(namespace) })
}

// fits reports whether scheme, port and path of a URL match the entry.
func (e *headerEntry) fits(u *url.URL) bool {
	if !slices.Contains(e.Schemes, u.Scheme) || !headerfile.Below(cmp.Or(u.RawPath, u.EscapedPath()), e.PathPrefix) {
		return false
	}
	if len(e.Ports) == 0 {
		return egress.Port(u) == egress.Port(&url.URL{Scheme: u.Scheme})
	}
	return slices.ContainsFunc(e.Ports, func(p int) bool { return strconv.Itoa(p) == egress.Port(u) })
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

// parseTeamFile parses the file that keeper compiles from the Secrets of teams. YAML would reject some
// characters that JSON permits, so one team could break the file for all. Errors name an entry, never a value.
func parseTeamFile(content []byte) (*headerFile, error) {
	var entries []*headerEntry
	if err := json.Unmarshal(content, &entries); err != nil && len(content) > 0 {
		return nil, errors.New("not a JSON list of entries") // the error may quote the file
	}
	return compileEntries(entries, "")
}

func compileEntries(entries []*headerEntry, dir string) (*headerFile, error) {
	for i, e := range entries {
		if e == nil {
			return nil, fmt.Errorf("entry %d: %w", i+1, errHeaderFile)
		}
		text, err := json.Marshal(e)
		e.text, e.Source = string(text), cmp.Or(e.Source, fmt.Sprintf("entry %d of the header file", i+1))
		if err := cmp.Or(err, e.compile(), e.open(dir)); err != nil {
			return nil, fmt.Errorf("entry %d: %w", i+1, err)
		}
	}
	return &headerFile{entries: entries}, nil
}

// compile validates the entry, and sets the defaults.
func (e *headerEntry) compile() (err error) {
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
	if len(e.Schemes) == 0 {
		e.Schemes = []string{"https"}
	}
	c := e.ClientCertificate
	switch {
	case len(e.Namespaces) == 0:
		return errors.New("add namespaces, such as namespaces: [team-a], or namespaces: [\"*\"] for all")
	case slices.ContainsFunc(e.Schemes, func(s string) bool { return s != "http" && s != "https" }):
		return errors.New("schemes must be http or https")
	case slices.ContainsFunc(e.Ports, func(p int) bool { return p < 1 || p > 65535 }):
		return errors.New("ports must be from 1 to 65535")
	case e.PathPrefix != "" && (e.PathPrefix[0] != '/' || !headerfile.Below(e.PathPrefix, e.PathPrefix)):
		return errors.New("pathPrefix must start with a slash and mean the same to every server")
	case e.OAuth2 != nil && e.BearerFile != "":
		return errors.New("oauth2 and bearerFile exclude each other")
	case c != nil && (c.CertFile == "" || c.KeyFile == ""):
		return errors.New("clientCertificate: add certFile and keyFile")
	case len(e.Headers) == 0 && e.OAuth2 == nil && c == nil &&
		e.BearerFile+e.CAFile+e.Certificate+e.Key+e.Authorities == "":
		return errors.New("no headers, oauth2, bearerFile, clientCertificate or caFile")
	}
	for name, value := range e.Headers {
		if !headerfile.Settable(name) {
			return errors.New("not a header that may be set")
		}
		if !headerfile.ValidValue(value) {
			return errors.New("value is empty or has a control character")
		}
	}
	if e.OAuth2 != nil {
		return e.OAuth2.compile()
	}
	return nil
}

// open opens the files of the entry. Errors do not contain their names.
func (e *headerEntry) open(dir string) error {
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
	if e.BearerFile != "" {
		e.bearer, err = openSecret(at(e.BearerFile))
		check("bearerFile", err)
	}
	if e.OAuth2 != nil {
		e.secret, err = openSecret(at(e.OAuth2.ClientSecretFile))
		check("oauth2: clientSecretFile", err)
		e.tokens = newTokens(*e.OAuth2, e.secret)
	}
	if e.ClientCertificate != nil || e.CAFile != "" {
		c := cmp.Or(e.ClientCertificate, &clientCertificate{})
		e.identity, err = openIdentity(at(c.CertFile), at(c.KeyFile), at(e.CAFile))
		check("clientCertificate or caFile", err)
	}
	if e.Certificate+e.Key+e.Authorities != "" {
		e.fixed, err = newIdentity([]byte(e.Certificate), []byte(e.Key), []byte(e.Authorities))
		failed = cmp.Or(failed, err)
	}
	return failed
}
