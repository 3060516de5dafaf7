package get

import "net/http"

// credentials are the headers for one host and namespace. They have no String
// and appear in no error.
type credentials struct {
	login   *login
	headers *headerEntry
}

// identity is equal for requests that carry the same credentials.
func (c credentials) identity() any { return c }

func (c credentials) apply(h http.Header) {
	if c.login != nil {
		h.Set("Authorization", c.login.basic())
	}
	if c.headers != nil {
		c.headers.apply(h)
	}
}

// credentials looks up what the operator has put down for a host.
func (c *Client) credentials(namespace, host string) credentials {
	var found credentials
	if c.netrc != nil {
		found.login = c.netrc.Value().find(host)
	}
	if c.headers != nil {
		found.headers = c.headers.Value().find(namespace, host)
	}
	return found
}
