package get

import (
	"math"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// maxValidator is the maximum size of a stored ETag, in bytes.
const maxValidator = 256

// forever replaces spans that are too long for a Duration.
const forever = time.Duration(math.MaxInt64)

// etag matches what RFC 9110 section 8.8.3 permits in ASCII.
var etag = regexp.MustCompile(`^(?:W/)?"[!#-~]*"$`)

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

// retryAfter parses seconds or an HTTP date (RFC 9110 section 10.2.3). It returns zero if there is
// neither, or if the date has passed.
//
// A date is compared with the response's Date, because both come from the same clock; now is used
// only without one.
func retryAfter(h http.Header, now time.Time) time.Duration {
	s := strings.TrimSpace(h.Get("Retry-After"))
	if date, err := http.ParseTime(h.Get("Date")); err == nil {
		now = date
	}
	if span, ok := seconds(s); ok {
		return span
	}
	at, err := http.ParseTime(s)
	if err != nil {
		return 0
	}
	return max(0, at.Sub(now))
}

// maxAge returns how long a response stays fresh: max-age minus Age (RFC 9111 section 4.2). Zero means
// unknown, or that it must be revalidated.
func maxAge(h http.Header) time.Duration {
	var age time.Duration
	for directive := range strings.SplitSeq(strings.Join(h.Values("Cache-Control"), ","), ",") {
		name, value, _ := strings.Cut(strings.ToLower(strings.TrimSpace(directive)), "=")
		switch name {
		case "no-store", "no-cache":
			return 0
		case "max-age":
			age, _ = seconds(strings.Trim(value, `"`))
		}
	}
	passed, _ := seconds(strings.TrimSpace(h.Get("Age")))
	return max(0, age-passed)
}

// seconds parses a decimal number of seconds of any size.
func seconds(s string) (time.Duration, bool) {
	if s == "" || strings.Trim(s, "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n > int64(forever/time.Second) {
		return forever, true
	}
	return time.Duration(n) * time.Second, true
}
