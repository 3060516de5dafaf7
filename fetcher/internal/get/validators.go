package get

import (
	"net/http"
	"regexp"
	"strings"
	"time"
)

// Validators make a GET conditional (RFC 9110 section 13). They are sent only to the URL that gave
// them. If only From is set, that URL has rejected a conditional GET and never gets another one.
type Validators struct {
	// From identifies the URL that answered, after redirects, and the entry with its headers; empty means none.
	From string
	// ETag (RFC 9110 section 8.8.3) and LastModified (section 8.8.2), each empty if absent or unusable.
	ETag, LastModified string
}

// Conditional reports whether a GET with the validators can be conditional.
func (v Validators) Conditional() bool { return v.ETag != "" || v.LastModified != "" }

const (
	// maxValidator is the maximum size of a stored ETag, in bytes.
	maxValidator = 256
	// minAge is the minimum difference between Last-Modified and Date. A younger file may change again within the second
	// that Last-Modified and many ETags name (RFC 9110 section 8.8.2.2), and the two clocks may differ.
	minAge = time.Minute
	// firstYear is the year of the first HTTP server. Older dates belong to reproducible builds, which give all files
	// the same one, such as 1970 or 1980. Servers make ETags of it, too.
	firstYear = 1990
)

// etag matches what RFC 9110 section 8.8.3 permits in ASCII, but not an empty one, which names no version.
var etag = regexp.MustCompile(`^(?:W/)?"[!#-~]+"$`)

// validETag returns an ETag that can be stored, or "".
func validETag(s string) string {
	if len(s) > maxValidator || !etag.MatchString(s) {
		return ""
	}
	return s
}

// validDate returns an HTTP date (RFC 9110 section 5.6.7), or "".
func validDate(s string) string {
	if s == "" {
		return "" // http.ParseTime takes long to fail
	}
	if _, err := http.ParseTime(s); err != nil {
		return ""
	}
	return s
}

// validators returns the usable validators of a 200.
func (x *exchange) validators(from string, h http.Header) Validators {
	v := Validators{From: from}
	if x.request.Validators == v { // it rejects conditional GETs
		return v
	}
	v.ETag, v.LastModified = validETag(only(h, "ETag")), validDate(only(h, "Last-Modified"))
	if modified, err := http.ParseTime(v.LastModified); err == nil {
		switch date, err := http.ParseTime(only(h, "Date")); {
		case modified.Year() < firstYear:
			return Validators{}
		case err != nil:
			v.LastModified = ""
		case date.Sub(modified) < minAge:
			return Validators{}
		}
	}
	if !v.Conditional() {
		return Validators{}
	}
	return v
}

// confirmed reports whether a 304 is about the body that gave the validators: its validators, if
// it has any, are the same (RFC 9111 section 4.3.4).
func (v Validators) confirmed(h http.Header) bool {
	tags, dates := h.Values("ETag"), h.Values("Last-Modified")
	switch {
	case len(tags) > 0 && v.ETag != "":
		return opaque(only(h, "ETag")) == opaque(v.ETag)
	case validETag(only(h, "ETag")) != "":
		return false
	case len(dates) > 0 && v.LastModified != "":
		return only(h, "Last-Modified") == v.LastModified
	}
	return true
}

// opaque returns the part of an ETag that the weak comparison uses (RFC 9110 section 8.8.3.2).
func opaque(tag string) string { return strings.TrimPrefix(tag, "W/") }

// rejectsCondition reports whether the conditions of a GET may be the reason for its status. The
// other statuses have reasons of their own, or another attempt follows without conditions.
func rejectsCondition(status int) bool {
	switch status {
	case http.StatusUnauthorized, http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests,
		http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return false
	}
	return status >= 400 || status == http.StatusNoContent
}
