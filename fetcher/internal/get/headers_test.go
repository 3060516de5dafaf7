package get

import (
	"math"
	"net/http"
	"strings"
	"testing"
	"time"
)

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	for text, want := range map[string]time.Duration{
		"":                                  0,
		"0":                                 0,
		"120":                               2 * time.Minute,
		" 5 ":                               5 * time.Second,
		"9223372036":                        9223372036 * time.Second,
		"9223372037":                        math.MaxInt64,
		"1000000000000":                     math.MaxInt64,
		strings.Repeat("9", 1000):           math.MaxInt64,
		"1e12":                              0,
		"-5":                                0,
		"+5":                                0,
		"5.5":                               0,
		"soon":                              0,
		"Wed, 01 Jul 2026 12:01:00 GMT":     time.Minute,
		"Wed, 01 Jul 2026 11:00:00 GMT":     0,
		"Wednesday, 01-Jul-26 12:01:00 GMT": time.Minute,
		"Fri, 31 Dec 9999 23:59:59 GMT":     math.MaxInt64,
	} {
		if got := retryAfter(http.Header{"Retry-After": {text}}, now); got != want {
			t.Errorf("retryAfter(%q) = %s, want %s", text, got, want)
		}
	}
}

func TestTheLongestRetryAfterCounts(t *testing.T) {
	values := []string{"1", "20", "soon"} // proxies add their own
	if got := retryAfter(http.Header{"Retry-After": values}, time.Now()); got != 20*time.Second {
		t.Errorf("retryAfter() = %s", got)
	}
}

func TestRetryAfterIsComparedWithTheClockOfTheServer(t *testing.T) {
	h := http.Header{"Retry-After": {"Wed, 01 Jul 2026 12:01:00 GMT"}, "Date": {"Wed, 01 Jul 2026 12:00:00 GMT"}}
	for _, wrong := range []time.Duration{-65 * time.Second, 0, time.Hour} {
		now := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC).Add(wrong)
		if got := retryAfter(h, now); got != time.Minute {
			t.Errorf("retryAfter() = %s with a clock that is %s wrong", got, wrong)
		}
	}
}

func TestValidators(t *testing.T) {
	for text, want := range map[string]bool{
		`"v1"`: true, `W/"v1"`: true, `""`: false, `"!#~"`: true,
		"": false, `"`: false, "v1": false, `v1"`: false, `"v1`: false, `w/"v1"`: false, `"a"b"`: false, "\"a\nb\"": false,
		`"a b"`:    false,
		"\"\xff\"": false, `"` + strings.Repeat("x", 300) + `"`: false,
	} {
		if got := validETag(text) != ""; got != want {
			t.Errorf("validETag(%q) = %t", text, got)
		}
	}
	for text, want := range map[string]bool{
		"Sun, 06 Nov 1994 08:49:37 GMT": true, "Sunday, 06-Nov-94 08:49:37 GMT": true, "": false, "now": false,
	} {
		if got := validDate(text) != ""; got != want {
			t.Errorf("validDate(%q) = %t", text, got)
		}
	}
}
