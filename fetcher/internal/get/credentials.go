package get

import (
	"net/http"
	"net/url"
	"slices"

	"github.com/kv8s/curl-me-that/fetcher/internal/egress"
)

// credentials are the headers for one host and namespace; equal ones are the same. They
// have no String and appear in no error.
type credentials struct {
	login   *login
	headers *headerEntry
}

func (c credentials) apply(h http.Header) {
	if c.login != nil {
		h.Set("Authorization", c.login.basic())
	}
	if c.headers != nil {
		c.headers.apply(h)
	}
}

// MayCarry reports whether a namespace may send credentials to the host of a request,
// if only by another scheme, at another port or path.
func (c *Client) MayCarry(r Request) bool {
	if c.headers == nil {
		return false
	}
	u, err := egress.ParseURL(r.URL)
	return err == nil && slices.ContainsFunc(c.headers.Value(), func(e *headerEntry) bool {
		return e.host.Match(u.Hostname()) && e.isFor(r.Namespace)
	})
}

// credentials looks up what the operator lets a namespace send to a URL.
func (c *Client) credentials(namespace string, u *url.URL) credentials {
	var found credentials
	if c.headers == nil {
		return found
	}
	found.headers = c.headers.Value().find(namespace, u)
	if found.headers != nil && found.headers.Netrc && c.netrc != nil {
		found.login = c.netrc.Value().find(u.Hostname())
	}
	return found
}
