package keystate

import (
	"time"

	"github.com/kv8s/curl-me-that/proto/condition"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
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
	// Audited means that the audit requested the key again, because its newest body had not landed.
	Audited bool
	// Stale means that the timer showed a stale key when it was last read.
	Stale bool
}

// lateTimer is the delay after which a timer counts as overdue. A healthy server is faster.
const lateTimer = time.Minute

// IsOverdue reports whether a timer should have fired.
func IsOverdue(now, at time.Time) bool { return now.Sub(at) > lateTimer }

// condition returns the state of a key according to the streams alone.
func (s *Streams) condition(a Asked, now time.Time) Condition {
	due := s.Due
	switch {
	case !s.Wanted:
		return Condition{State: Pending, Reason: Unpublished}
	case due == nil && !s.Taken:
		return Condition{State: Pending, Reason: Backlog, Since: s.WantedAt}
	case due == nil && s.Stale:
		return Condition{State: Stale, Reason: Outdated, Stale: true}
	case due == nil:
		return Condition{State: OK}
	}
	c := Condition{
		State: OK, Next: s.At, Attempts: due.GetAttempts(), Checked: Checked(due, s.SetAt),
		Stale: condition.StaleDue(due, a.Refresh, now), WaitsFor: condition.WaitsFor(due.GetWaitsFor(), a.URL),
	}
	if s.Fired {
		c.Checked = time.Time{}
	}
	if due.GetFirstFailedAt() != nil {
		c.Since = due.GetFirstFailedAt().AsTime()
	}
	fresh := due.GetFreshUntil()
	switch {
	case due.GetReported() != v1.FailureClass_FAILURE_CLASS_UNSPECIFIED:
		c.State, c.Reason, c.Status = Failing, pipeline.Reason(due.GetReported()), due.GetStatusCode()
	case s.Fired:
		c.State, c.Reason, c.Since = Pending, Backlog, s.At
	case IsOverdue(now, s.At):
		c.State, c.Reason, c.Since = Stale, Overdue, s.At
	case due.GetCause() == v1.Cause_CAUSE_PARKED:
		c.State, c.Reason, c.Since = Pending, Parked, s.SetAt
	case due.GetAttempts() > 0, due.GetCause() == v1.Cause_CAUSE_RETRY, due.GetCause() == v1.Cause_CAUSE_REPLAY:
		c.State, c.Reason = Pending, Retry
	case c.Stale && fresh != nil:
		c.State, c.Reason, c.Since = Stale, Outdated, fresh.AsTime()
	}
	return c
}

// Checked returns the time of the last attempt, at which the timer was set. It is zero if the timer
// was set without an attempt.
func Checked(due *v1.Due, setAt time.Time) time.Time {
	tried := due.GetFreshUntil() != nil || due.GetFirstFailedAt() != nil
	if due.GetCause() == v1.Cause_CAUSE_PARKED || !tried {
		return time.Time{}
	}
	return setAt
}
