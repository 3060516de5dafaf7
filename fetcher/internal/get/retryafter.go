package get

import (
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// forever replaces spans that are too long for a Duration.
const forever = time.Duration(math.MaxInt64)

// retryAfter parses seconds or an HTTP date (RFC 9110 section 10.2.3). It returns zero if there is
// neither, or if the date has passed.
//
// A date is compared with the response's Date, because both come from the same clock; now is used only without one.
func retryAfter(h http.Header, now time.Time) time.Duration {
	if date, err := http.ParseTime(h.Get("Date")); err == nil {
		now = date
	}
	longest := time.Duration(0) // proxies add their own
	for _, s := range h.Values("Retry-After") {
		s = strings.TrimSpace(s)
		if span, ok := seconds(s); ok {
			longest = max(longest, span)
		} else if at, err := http.ParseTime(s); err == nil {
			longest = max(longest, at.Sub(now))
		}
	}
	return longest
}

// asksForPause reports whether a status is temporary only because of its Retry-After, such as 403 for a
// rate limit, or 202 for a body that is not ready.
func asksForPause(status int) bool {
	switch status {
	case http.StatusUnauthorized, http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests:
		return false
	}
	return status/100 == 2 || status/100 == 4
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
