package keystate

import (
	"time"

	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/failure"
	"github.com/kv8s/curl-me-that/proto/sentence"
)

// Streams is what the streams show about the want of a key.
type Streams struct {
	// Wanted means that there is a want, which was published at WantedAt, if known. Taken means that a fetcher has
	// taken it.
	Wanted, Taken bool
	WantedAt      time.Time
	// Due is the payload of the timer, set at SetAt to fire at At (nil: there is none, or it was not read).
	Due       *v1.Due
	At, SetAt time.Time
	// Fired means that the timer has fired, and no fetcher has taken the due yet.
	Fired bool
	// Newest is the digest of the newest body (empty: unknown).
	Newest string
	// NotLanding means that the audit requested the key again, because its newest body had not landed.
	NotLanding bool
	// Stale means that the timer showed a stale key when it was last read.
	Stale bool
}

// lateTimer is the delay after which a timer counts as overdue. A healthy server is faster. The audit replaces a timer
// after half of --audit-interval, which curlctl does not know: by default the same.
const lateTimer = time.Minute

// IsOverdue reports whether a timer should have fired.
func IsOverdue(now, at time.Time) bool { return now.Sub(at) > lateTimer }

// fetches returns a condition with the details of the last fetch and the next one, without a state.
func (s *Streams) fetches(spec Spec, now time.Time) Condition {
	due := s.Due
	c := Condition{
		Next: s.At, Attempts: due.GetAttempts(), Stale: s.Stale || failure.StaleDue(due, spec.Refresh, now),
		WaitsFor: sentence.WaitsFor(due.GetWaitsFor(), spec.URL),
	}
	if !s.Fired {
		c.LastAttempt = LastAttempt(due, s.SetAt)
	}
	if at := due.GetFirstFailedAt(); at != nil {
		c.Since = at.AsTime()
	}
	return c
}

// failing returns the condition of a key whose last fetch failed, with the details of the same failure in its object.
func (s *Streams) failing(c, shown Condition) Condition {
	c.State, c.Reason, c.Status = Failing, failure.Reason(s.Due.GetReported()), s.Due.GetStatusCode()
	if shown.State == Failing && !shown.Since.IsZero() && shown.Since.Before(c.Since) {
		c.Since = shown.Since // NATS was replaced since
	}
	if shown.Reason == c.Reason {
		c.Message, c.Attempts = shown.Message, max(c.Attempts, shown.Attempts)
	}
	return c
}

// LastAttempt returns the time of the last attempt, at which the timer was set. It is zero if the timer
// was set without an attempt.
func LastAttempt(due *v1.Due, setAt time.Time) time.Time {
	tried := due.GetFreshUntil() != nil || due.GetFirstFailedAt() != nil
	if due.GetCause() == v1.Cause_CAUSE_PARKED || !tried {
		return time.Time{}
	}
	return setAt
}
