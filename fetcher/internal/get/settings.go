package get

import (
	"errors"
	"net/http"
	"strings"

	"github.com/kv8s/curl-me-that/fetcher/internal/egress"
	"github.com/kv8s/curl-me-that/proto/failure"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

// Kinds of settings that may end a failure, the first character of Error.Settings.
const (
	ofPolicy      = "p" // the egress policy of the namespace
	ofCredentials = "c" // the entries of the header files for the host
	ofTrust       = "t" // these and the authorities
	ofTokens      = "k" // these and the egress policy of all namespaces, for the token URL
)

// settingsKind returns the kind of the settings that may end a failure (empty means none). Many servers respond
// with 404 to a request without a credential.
func settingsKind(e *Error) string {
	var denied *egress.DeniedError
	switch {
	case e.Class == failure.CredentialsFailed:
		return ofTokens
	case e.Class == failure.AddressDenied, errors.As(e.cause, &denied):
		return ofPolicy
	case e.Class == failure.TLSFailed,
		e.Detail == failure.ClientCertificate:
		return ofTrust
	case e.StatusCode == http.StatusUnauthorized, e.StatusCode == http.StatusForbidden,
		e.StatusCode == http.StatusNotFound:
		return ofCredentials
	}
	return ""
}

// settings identifies the settings of one kind for a resolved request, in all fetchers. A digest over secrets is cut
// to 16 bits, because more would help to guess them.
func (c *Client) settings(kind string, r Request) string {
	var parts []string
	switch kind {
	case "":
		return ""
	case ofPolicy:
		parts = []string{r.policy.Text()}
	case ofTokens:
		parts = []string{c.deps.Gate.For("").Text(), c.roots.Hash()}
	case ofTrust:
		parts = []string{c.roots.Hash()}
	}
	if kind != ofPolicy {
		parts = append(parts, r.grants[0].content(), r.grants[1].content())
	}
	return kind + pipeline.Digest(strings.Join(parts, "\n"))[:4]
}

// SettingsChanged reports whether the settings that may end a failure are other ones than in Error.Settings.
func (c *Client) SettingsChanged(namespace, url, settings string) bool {
	return settings != "" && c.settings(settings[:1], c.Resolve(Request{URL: url, Namespace: namespace})) != settings
}

// content returns the text of the entries and hashes of their files.
func (h hostEntries) content() string {
	var text strings.Builder
	for e := range h.all {
		text.WriteString(e.content())
	}
	return text.String()
}

// digest identifies the entry and the content of its files, as briefly as settings do (nil: empty).
func (h *headerEntry) digest() string {
	if h == nil {
		return ""
	}
	return pipeline.Digest(h.content())[:4]
}

// content returns the text of the entry and hashes of its files.
func (h *headerEntry) content() string {
	return h.text + h.bearer.Hash() + h.secret.Hash() + h.identity.Hash()
}
