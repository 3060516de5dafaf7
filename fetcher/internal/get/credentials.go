package get

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/http"
	"net/url"
	"slices"

	"golang.org/x/net/http/httpguts"

	"github.com/kv8s/curl-me-that/fetcher/internal/egress"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/failure"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/process/reload"
	"github.com/kv8s/curl-me-that/proto/sentence"
)

// grants are the entries of the header files that one namespace may use for one host, the operator's
// first. They are comparable.
type grants [2]hostEntries

// find returns the entry for a URL of the host.
func (g grants) find(u *url.URL) *headerEntry { return cmp.Or(g[0].find(u), g[1].find(u)) }

// credentials are the credentials of one hop. They have no String method and appear in no error.
type credentials struct {
	entry *headerEntry
	// from identifies, in Validators, the URL of the hop, which may have secrets of a redirect, and the entry as it was
	// before the hop. With other headers the server may give another body the same validators.
	from     string
	token    string
	identity *clientIdentity
}

// sends reports whether the server gets a credential.
func (c credentials) sends() bool { return c.entry != nil && c.entry.sendsCredential() }

func (c credentials) apply(h http.Header) {
	if c.token != "" {
		h.Set("Authorization", "Bearer "+c.token)
	}
	if c.entry != nil {
		for name, value := range c.entry.Headers {
			h.Set(name, value)
		}
	}
}

// credentials returns the credentials of an entry, which may be nil, for a hop to u.
func (c *Client) credentials(ctx context.Context, u *url.URL, e *headerEntry) (credentials, error) {
	found := credentials{entry: e, from: pipeline.Digest(textOf(u))[:32] + e.digest()}
	switch {
	case e == nil:
		return found, nil
	case e.bearer != nil:
		found.token = e.bearer.Value()
	case e.tokens != nil:
		token, err := e.tokens.Token(ctx, c)
		if err != nil {
			return found, noToken(e, err)
		}
		found.token = token
	}
	found.identity = e.tls()
	return found, nil
}

// replace returns other credentials after a 401, if there are any.
func (c *Client) replace(ctx context.Context, rejected credentials) (credentials, bool) {
	e, token := rejected.entry, ""
	switch {
	case e == nil:
	case e.bearer != nil:
		e.bearer.Poll(c.deps.OnReload)
		token = e.bearer.Value()
	case e.tokens != nil:
		var err error
		if token, err = e.tokens.Replace(ctx, c, rejected.token); err != nil {
			return rejected, false
		}
	}
	if token == "" || token == rejected.token {
		return rejected, false
	}
	rejected.token = token
	return rejected, true
}

func noToken(e *headerEntry, cause error) *Error {
	return &Error{
		Class: failure.CredentialsFailed, Credential: e.OAuth2.host,
		cause: cause,
	}
}

// explain adds the rejected credential to an error, or its absence if that is a likely cause.
func (c credentials) explain(e *Error, likely bool) *Error {
	if c.sends() {
		e.Credential = c.entry.Source
	} else if likely && e.Detail == failure.NoDetail {
		e.Detail = failure.NoCredential
	}
	return e
}

// Credential says in one sentence which credential is sent to a URL (empty without a header file).
func (c *Client) Credential(namespace, raw string) string {
	u, err := egress.ParseURL(raw)
	if err != nil || c.headerFiles[0] == nil && c.headerFiles[1] == nil {
		return ""
	}
	if e := c.Resolve(Request{URL: raw, Namespace: namespace}).grants.find(u); e != nil && e.sendsCredential() {
		return "the credential of " + e.Source + " is sent"
	}
	return sentence.Detail(&v1.Failure{Detail: failure.NoCredential})
}

// maxToken is the maximum size of a token, in bytes.
const maxToken = 16 << 10

// openSecret follows a file with a secret, such as a projected service account token.
func openSecret(path string) (*reload.File[string], error) { return reload.Open(path, parseSecret) }

func parseSecret(content []byte) (string, error) {
	secret := string(bytes.TrimSpace(content))
	if !isToken(secret) {
		return "", errors.New("not a secret of 1 to 16384 bytes without control characters")
	}
	return secret, nil
}

func isToken(s string) bool {
	return s != "" && len(s) <= maxToken && httpguts.ValidHeaderFieldValue(s)
}

// clientIdentity is the TLS configuration of one entry. It is immutable.
type clientIdentity struct {
	// Certificates are shown to the server. None means that the client stays anonymous.
	Certificates []tls.Certificate
	// Roots are the only trusted authorities (nil means those of the client).
	Roots *x509.CertPool
}

// newIdentity parses PEM. Empty parts are skipped.
func newIdentity(certificate, key, authorities []byte) (*clientIdentity, error) {
	id := &clientIdentity{}
	if len(certificate)+len(key) > 0 {
		pair, err := tls.X509KeyPair(certificate, key)
		if err != nil {
			// The error may describe the key.
			return nil, errors.New("not a PEM certificate with its key")
		}
		id.Certificates = []tls.Certificate{pair}
	}
	if len(authorities) > 0 {
		id.Roots = x509.NewCertPool()
		if !id.Roots.AppendCertsFromPEM(authorities) {
			return nil, errors.New("no PEM certificate of an authority")
		}
	}
	return id, nil
}

// openIdentity follows the files of a clientIdentity. Empty paths are skipped.
func openIdentity(certificate, key, authorities string) (*reload.File[*clientIdentity], error) {
	paths := slices.DeleteFunc([]string{certificate, key, authorities}, func(path string) bool { return path == "" })
	return reload.OpenAll(paths, func(content [][]byte) (*clientIdentity, error) {
		next := func(path string) (part []byte) {
			if path != "" {
				part, content = content[0], content[1:]
			}
			return part
		}
		return newIdentity(next(certificate), next(key), next(authorities))
	})
}
