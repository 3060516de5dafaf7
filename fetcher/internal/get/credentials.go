package get

import (
	"net/http"
	"net/url"
)

// credentials are the headers for one URL and namespace. They have no String method and appear in
// no error.
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

// credentials returns the credentials for a hop.
func (c *Client) credentials(r Request, u *url.URL) credentials {
	found := credentials{headers: r.entries.find(u)}
	if found.headers != nil && found.headers.Netrc && c.netrc != nil {
		found.login = c.netrc.Value().find(u.Hostname())
	}
	return found
}
