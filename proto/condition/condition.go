// Package condition is the one model of how a key is: its state and reason, the
// sentence for a person, since when, what comes next and what that waits for.
// Events, the status annotation, curlctl and metrics all take their words from
// here.
package condition

import (
	"cmp"
	"time"

	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/pipeline/operate"
)

// State of a key.
type State string

// The states.
const (
	// Failing: the last attempt failed.
	Failing State = "failing"
	// Waiting: a fetch is asked for and has not been made.
	Waiting State = "waiting"
	// IsStale: the regular fetch is long overdue.
	IsStale State = "stale"
	// Well: none of these.
	Well State = "well"
)

// Reasons of the states other than Failing, which has those of Events.
const (
	// Backlog: no fetcher has taken the request yet.
	Backlog = "Backlog"
	// Parked: the host or the namespace had no free slot, or the host asked for
	// a pause.
	Parked = "Parked"
	// Overdue: the timer should have fired.
	Overdue = "Overdue"
	// Outdated: there has been no good fetch for StaleIntervals.
	Outdated = "Outdated"
)

// StaleIntervals is after how many intervals without a good fetch a key is
// stale.
const StaleIntervals = 3

// LateTimer is how late a timer fires at worst on a server that is well.
const LateTimer = time.Minute

// Condition of a key.
type Condition struct {
	// State of the key.
	State State
	// Reason of the state.
	Reason string
	// Status is the HTTP status of the last attempt, if that failed; 0: there was
	// none.
	Status int32
	// Since is when the state began, if that is known.
	Since time.Time
	// Next is when the next attempt is due; zero: there is no timer.
	Next time.Time
	// Attempts that failed in this round.
	Attempts uint32
	// Checked is when the key was last looked at, as far as its timer shows it.
	Checked time.Time
	// Stale: there has been no good fetch for StaleIntervals, whatever the state.
	Stale bool
	// WaitsFor is what the next attempt waits for; empty: its time alone.
	WaitsFor string
}

// Of returns the condition of a want. The timer is that of its key; nil: there
// is none. Up to handled, in sequences, the fetchers have taken all requests.
func Of(want operate.Want, timer *operate.Timer, handled uint64, now time.Time) Condition {
	if timer == nil || timer.Due.GetWantSequence() != want.Sequence {
		if want.Sequence > handled {
			return Condition{State: Waiting, Reason: Backlog, Since: want.At}
		}
		return Condition{State: Well}
	}
	due := timer.Due
	c := Condition{State: Well, Next: timer.At, Attempts: due.GetAttempts(), WaitsFor: WaitsFor(due.GetWaitsFor(), want.Want.GetUrl())}
	c.Checked = Checked(*timer)
	if due.GetFirstFailedAt() != nil {
		c.Since = due.GetFirstFailedAt().AsTime()
	}
	interval := want.Want.GetRefresh().AsDuration()
	fresh := due.GetFreshUntil()
	c.Stale = Stale(due, interval, now)
	switch {
	case due.GetReported() != v1.FailureClass_FAILURE_CLASS_UNSPECIFIED:
		c.State, c.Reason, c.Status = Failing, pipeline.Reason(due.GetReported()), due.GetStatusCode()
	case now.Sub(timer.At) > LateTimer:
		c.State, c.Reason, c.Since = IsStale, Overdue, timer.At
	case due.GetCause() == v1.Cause_CAUSE_PARKED:
		c.State, c.Reason, c.Since = Waiting, Parked, timer.SetAt
	case c.Stale && fresh != nil:
		c.State, c.Reason, c.Since = IsStale, Outdated, fresh.AsTime()
	}
	return c
}

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

// Checked returns when a key was last looked at, which is when its timer was set;
// zero: the timer was set without a look.
func Checked(timer operate.Timer) time.Time {
	due := timer.Due
	looked := due.GetFreshUntil() != nil || due.GetFirstFailedAt() != nil
	if due.GetCause() == v1.Cause_CAUSE_PARKED || !looked {
		return time.Time{}
	}
	return timer.SetAt
}

// Compare orders conditions: what fails before what is stale before what waits,
// and of each the longest first.
func Compare(a, b Condition) int {
	order := map[State]int{Failing: 1, IsStale: 2, Waiting: 3, Well: 4}
	return cmp.Or(cmp.Compare(order[a.State], order[b.State]), a.Since.Compare(b.Since))
}
