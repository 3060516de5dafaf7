package get

import (
	"net/http"
	"net/url"
)

// isRedirect tells whether a status asks for the same GET elsewhere (RFC 9110
// section 15.4).
func isRedirect(status int) bool {
	switch status {
	case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther,
		http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
		return true
	}
	return false
}

// sameOrigin tells whether credentials for one URL may go to another: the
// same host, scheme and port, or the same host moving up from http to https
// at the default ports.
func sameOrigin(from, to *url.URL) bool {
	if from.Hostname() != to.Hostname() {
		return false
	}
	if from.Scheme == to.Scheme {
		return port(from) == port(to)
	}
	return port(from) == "80" && port(to) == "443"
}

func port(u *url.URL) string {
	if p := u.Port(); p != "" {
		return p
	}
	if u.Scheme == "https" {
		return "443"
	}
	return "80"
}

// hostOf returns the host of a URL that is denied by its text, if it has one.
func hostOf(raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		return ""
	}
	return u.Hostname()
}
