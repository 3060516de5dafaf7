// Package condition has the words for the state of a key, which Events, the status
// annotation, curlctl and logs share, and the rule that makes a key stale.
package condition

import (
	"time"

	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
)

// StaleIntervals is after how many intervals without a good fetch a key is
// stale.
const StaleIntervals = 3

// Stale reports whether a key with that interval has had no good fetch for
// StaleIntervals, by the payload of its timer.
func Stale(due *v1.Due, interval time.Duration, now time.Time) bool {
	switch {
	case interval <= 0:
		return false
	case due.GetFreshUntil() != nil: // when the fetch after the last good one was due
		return now.Sub(due.GetFreshUntil().AsTime()) > (StaleIntervals-1)*interval
	case due.GetFirstFailedAt() != nil:
		return FailsForLong(due.GetFirstFailedAt().AsTime(), interval, now)
	}
	return false
}

// FailsForLong reports whether a key with that interval that has been failing
// since a time is stale by that alone.
func FailsForLong(since time.Time, interval time.Duration, now time.Time) bool {
	return interval > 0 && !since.IsZero() && now.Sub(since) > StaleIntervals*interval
}
