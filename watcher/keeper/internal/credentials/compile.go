package credentials

import (
	"cmp"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/kv8s/curl-me-that/proto/headerfile"
	"github.com/kv8s/curl-me-that/proto/weburl"
)

const (
	// TeamLabel marks the Secrets to compile, with the value "true".
	TeamLabel = "x-kv8s.io/curl-credentials"
	// HostsAnnotation has the base URLs to which the credentials of a Secret are sent.
	HostsAnnotation = "x-kv8s.io/curl-hosts"
	// MaxBytes is the maximum size of all entries as JSON.
	MaxBytes = 900 << 10
	// maxHosts is the maximum number of URLs of one Secret.
	maxHosts = 8
	// maxEntries is the maximum number of entries of one namespace.
	maxEntries = 64
	// maxRSABits is the maximum size of an RSA key, as in package tls for the keys of servers, and maxKeyBytes that of
	// a private key in PEM. The time to load or to use a key grows with the cube of its size.
	maxRSABits, maxKeyBytes = 8 << 10, 8 << 10
)

// Ignored is an ignored Secret with the reason.
type Ignored struct {
	Secret *corev1.Secret
	Reason string
}

// Compile returns the entries of the Secrets of one namespace, and the Secrets that are ignored.
// Older Secrets take precedence. The Secrets have at most maxBytes, as have the entries as JSON.
func Compile(secrets []corev1.Secret, maxBytes int) (entries []headerfile.Entry, ignored []Ignored) {
	ordered := slices.SortedFunc(slices.Values(secrets), func(a, b corev1.Secret) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	served, size, read := map[string]string{}, 0, 0
	for i := range ordered {
		s := &ordered[i]
		if s.Labels[TeamLabel] != "true" {
			continue
		}
		for _, value := range s.Data {
			read += len(value)
		}
		var compiled []headerfile.Entry
		var err error
		if read <= maxBytes { // certificates of a namespace take 0.2 s at most, even if they are ignored
			compiled, err = compile(s, served)
		}
		text, _ := json.Marshal(compiled)
		switch {
		case err != nil:
		case len(entries)+len(compiled) > maxEntries:
			err = fmt.Errorf("the Secrets of the namespace name more than %d hosts", maxEntries)
		case max(read, size+len(text)) > maxBytes:
			err = fmt.Errorf("the credentials of the namespace exceed its %d KiB", maxBytes>>10)
		}
		if err != nil {
			ignored = append(ignored, Ignored{Secret: s, Reason: err.Error()})
			continue
		}
		entries, size = append(entries, compiled...), size+len(text)
		for _, e := range compiled {
			served[key(e)] = s.Name
		}
	}
	// The first match is used, so the longest path goes first.
	slices.SortFunc(entries, func(a, b headerfile.Entry) int {
		return cmp.Or(cmp.Compare(len(b.PathPrefix), len(a.PathPrefix)), cmp.Compare(key(a), key(b)))
	})
	return entries, ignored
}

func key(e headerfile.Entry) string {
	host := strings.TrimSuffix(e.Host+":"+strconv.Itoa(e.Ports[0]), ":443")
	return "https://" + host + strings.TrimSuffix(e.PathPrefix, "/")
}

func compile(s *corev1.Secret, served map[string]string) ([]headerfile.Entry, error) {
	template, err := credentialOf(s)
	if err != nil {
		return nil, err
	}
	hosts := strings.Fields(strings.ReplaceAll(s.Annotations[HostsAnnotation], ",", " "))
	switch {
	case len(hosts) == 0:
		return nil, fmt.Errorf("names no host; annotate it with %s, such as https://api.example.com/v1", HostsAnnotation)
	case len(hosts) > maxHosts:
		return nil, fmt.Errorf("%s names more than %d hosts", HostsAnnotation, maxHosts)
	}
	var entries []headerfile.Entry
	for i, raw := range hosts {
		e, ok := at(template, raw)
		if !ok {
			return nil, fmt.Errorf("host %d of %s is not an https URL with a host name and an optional path, without wildcard",
				i+1, HostsAnnotation)
		}
		if other := served[key(e)]; other != "" {
			return nil, fmt.Errorf("%s is already served by Secret %s", key(e), other)
		}
		entries = append(entries, e)
	}
	return entries, nil
}

// at returns an entry with the host and path of a URL, or false if the URL is invalid.
func at(e headerfile.Entry, raw string) (headerfile.Entry, bool) {
	u, err := url.Parse(raw)
	if err != nil || len(raw) > weburl.MaxBytes || u.Scheme != "https" || u.User != nil ||
		u.RawQuery != "" || u.ForceQuery || u.Fragment != "" {
		return e, false
	}
	port := 443
	e.Host = strings.ToLower(u.Hostname())
	if !weburl.HostName(e.Host) || strings.HasSuffix(u.Host, ":") {
		return e, false
	}
	if u.Port() != "" {
		if port, err = strconv.Atoi(u.Port()); err != nil || port < 1 || port > 65535 {
			return e, false
		}
	}
	e.Ports = []int{port}
	e.PathPrefix = strings.TrimSuffix(u.EscapedPath(), "/")
	return e, e.PathPrefix == "" || headerfile.Below(e.PathPrefix, e.PathPrefix)
}

// credentialOf returns an entry without a host.
func credentialOf(s *corev1.Secret) (headerfile.Entry, error) {
	e := headerfile.Entry{Namespaces: []string{s.Namespace}, Source: "Secret " + s.Name, Headers: map[string]string{}}
	for _, k := range slices.Sorted(maps.Keys(s.Data)) {
		value := strings.TrimSpace(string(s.Data[k]))
		header, isHeader := strings.CutPrefix(k, "header.")
		switch {
		case k == "bearerToken":
			value = "Bearer " + value
			e.Headers["Authorization"] = value
		case k == "username" || k == "password":
		case k == corev1.TLSCertKey:
			e.Certificate = value
		case k == corev1.TLSPrivateKeyKey:
			e.Key = value
		case k == "ca.crt":
			e.Authorities = value
		case !isHeader:
			return e, fmt.Errorf("%s is not a credential; use bearerToken, username and password, header.NAME, tls.crt "+
				"and tls.key, or ca.crt", k)
		case !headerfile.Settable(header):
			return e, fmt.Errorf("%s may not be set", k)
		case e.Headers[http.CanonicalHeaderKey(header)] != "":
			return e, fmt.Errorf("%s is set twice", k)
		default:
			e.Headers[http.CanonicalHeaderKey(header)] = value
		}
		if isHeader || k == "bearerToken" {
			if !headerfile.ValidValue(value) || value == "Bearer " {
				return e, fmt.Errorf("%s is empty or has a control character", k)
			}
		}
	}
	if user, password := s.Data["username"], s.Data["password"]; user != nil || password != nil {
		if e.Headers["Authorization"] != "" {
			return e, errors.New("username excludes bearerToken and header.Authorization")
		}
		if user == nil || password == nil || strings.Contains(string(user), ":") {
			return e, errors.New("username and password go together, and username has no colon")
		}
		e.Headers["Authorization"] = "Basic " + base64.StdEncoding.EncodeToString([]byte(line(user)+":"+line(password)))
	}
	return e, validTLS(e)
}

// line returns a value without the end of line that editors add. A password may begin or end with a space.
func line(value []byte) string { return strings.TrimRight(string(value), "\r\n") }

func validTLS(e headerfile.Entry) error {
	if len(e.Key) > maxKeyBytes {
		return fmt.Errorf("tls.key has more than %d KiB", maxKeyBytes>>10)
	}
	if e.Certificate+e.Key != "" {
		if _, err := tls.X509KeyPair([]byte(e.Certificate), []byte(e.Key)); err != nil {
			return errors.New("tls.crt and tls.key are not a PEM certificate with its key") // the error might reveal the key
		}
	}
	if e.Authorities != "" && !x509.NewCertPool().AppendCertsFromPEM([]byte(e.Authorities)) {
		return errors.New("ca.crt has no PEM certificate")
	}
	for block, rest := pem.Decode([]byte(e.Authorities)); block != nil; block, rest = pem.Decode(rest) {
		certificate, err := x509.ParseCertificate(block.Bytes)
		if err != nil { // the pool ignores it, too
			continue
		}
		if public, isRSA := certificate.PublicKey.(*rsa.PublicKey); isRSA && public.N.BitLen() > maxRSABits {
			return fmt.Errorf("ca.crt has an RSA key of more than %d bits", maxRSABits)
		}
	}
	if len(e.Headers) == 0 && e.Certificate+e.Authorities == "" {
		return errors.New("has no credential; add bearerToken, username and password, header.NAME, tls.crt and " +
			"tls.key, or ca.crt")
	}
	return nil
}
