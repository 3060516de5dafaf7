package get

import (
	"net/http"
	"strings"
)

// only returns the value of a header field, or "" if the response contradicts itself.
func only(h http.Header, name string) string {
	for _, value := range h.Values(name) {
		if value != h.Get(name) {
			return ""
		}
	}
	return h.Get(name)
}

// hidden returns the values of a header field with a blank after its name (RFC 9112 section 5.1), which package http
// takes for another name.
func hidden(h http.Header, name string) []string {
	for other, values := range h {
		if plain := strings.TrimRight(other, " "); plain != other && http.CanonicalHeaderKey(plain) == name {
			return values
		}
	}
	return nil
}
