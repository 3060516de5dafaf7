package pipeline

import (
	"time"

	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
)

// StaleIntervals is the number of intervals without a successful fetch after which a key is stale.
const StaleIntervals = 3

// StaleDue reports whether the last successful fetch of a key with that interval is more than
// StaleIntervals ago, according to the payload of its timer.
func StaleDue(due *v1.Due, interval time.Duration, now time.Time) bool {
	switch {
	case interval <= 0:
		return false
	case due.GetFreshUntil() != nil: // one interval after the last successful fetch
		return now.Sub(due.GetFreshUntil().AsTime()) > (StaleIntervals-1)*interval
	case due.GetFirstFailedAt() != nil:
		return FailsForLong(due.GetFirstFailedAt().AsTime(), interval, now)
	}
	return false
}

// FailsForLong reports whether a key with that interval is stale because it has been failing since
// that time.
func FailsForLong(since time.Time, interval time.Duration, now time.Time) bool {
	return interval > 0 && !since.IsZero() && now.Sub(since) > StaleIntervals*interval
}
