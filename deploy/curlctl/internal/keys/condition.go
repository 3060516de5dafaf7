// Package keys reads the wanted keys with their timers, and works out the condition of
// each.
package keys

import (
	"cmp"
	"time"

	"github.com/kv8s/curl-me-that/deploy/curlctl/operate"
	"github.com/kv8s/curl-me-that/proto/condition"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

// State of a key.
type State string

// The states.
const (
	// Failing: the last attempt failed.
	Failing State = "failing"
	// Waiting: a fetch is due and has not been made.
	Waiting State = "waiting"
	// Stale: the regular fetch is long overdue.
	Stale State = "stale"
	// Well: none of the others.
	Well State = "well"
)

// Reasons of the states. Failing has the reasons of Events.
const (
	// Backlog: no fetcher has taken the request yet.
	Backlog = "Backlog"
	// Parked: the host or the namespace had no free slot, or the host asked for a pause.
	Parked = "Parked"
	// Overdue: the timer should have fired.
	Overdue = "Overdue"
	// Outdated: there was no good fetch for condition.StaleIntervals.
	Outdated = "Outdated"
)

// lateTimer is the maximum delay of a timer on a healthy server.
const lateTimer = time.Minute

// IsOverdue reports whether a timer should have fired.
func IsOverdue(now, at time.Time) bool { return now.Sub(at) > lateTimer }

// Condition of a key.
type Condition struct {
	State  State
	Reason string
	// Status is the HTTP status of the last attempt if that failed; 0: no response.
	Status int32
	// Since is the start of the state, if it is known.
	Since time.Time
	// Next is the time of the next attempt; zero: there is no timer.
	Next time.Time
	// Attempts counts the failed attempts of this round.
	Attempts uint32
	// Checked is the time of the last attempt, if the timer shows it.
	Checked time.Time
	// Stale: no good fetch for condition.StaleIntervals, whatever the state.
	Stale bool
	// WaitsFor is the obstacle of the next attempt; empty: only its time.
	WaitsFor string
}

// ConditionOf returns the condition of a want. A nil timer means that there is none.
// The fetchers have handled all requests up to the sequence handled.
func ConditionOf(want operate.Want, timer *operate.Timer, handled uint64, now time.Time) Condition {
	if timer == nil || timer.Due.GetWantSequence() != want.Sequence {
		if want.Sequence > handled {
			return Condition{State: Waiting, Reason: Backlog, Since: want.At}
		}
		return Condition{State: Well}
	}
	due := timer.Due
	c := Condition{
		State: Well, Next: timer.At, Attempts: due.GetAttempts(), Checked: Checked(*timer),
		Stale:    condition.Stale(due, want.Want.GetRefresh().AsDuration(), now),
		WaitsFor: condition.WaitsFor(due.GetWaitsFor(), want.Want.GetUrl()),
	}
	if due.GetFirstFailedAt() != nil {
		c.Since = due.GetFirstFailedAt().AsTime()
	}
	fresh := due.GetFreshUntil()
	switch {
	case due.GetReported() != v1.FailureClass_FAILURE_CLASS_UNSPECIFIED:
		c.State, c.Reason, c.Status = Failing, pipeline.Reason(due.GetReported()), due.GetStatusCode()
	case IsOverdue(now, timer.At):
		c.State, c.Reason, c.Since = Stale, Overdue, timer.At
	case due.GetCause() == v1.Cause_CAUSE_PARKED:
		c.State, c.Reason, c.Since = Waiting, Parked, timer.SetAt
	case c.Stale && fresh != nil:
		c.State, c.Reason, c.Since = Stale, Outdated, fresh.AsTime()
	}
	return c
}

// Checked returns the time of the last attempt, at which the timer was set. It is zero
// if the timer was set without an attempt.
func Checked(timer operate.Timer) time.Time {
	due := timer.Due
	tried := due.GetFreshUntil() != nil || due.GetFirstFailedAt() != nil
	if due.GetCause() == v1.Cause_CAUSE_PARKED || !tried {
		return time.Time{}
	}
	return timer.SetAt
}

// CompareConditions sorts failing before stale before waiting, and the oldest first.
func CompareConditions(a, b Condition) int {
	order := map[State]int{Failing: 1, Stale: 2, Waiting: 3, Well: 4}
	return cmp.Or(cmp.Compare(order[a.State], order[b.State]), a.Since.Compare(b.Since))
}
