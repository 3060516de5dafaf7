// Package keystate computes the condition of a key from the streams and from the object.
package keystate

import (
	"cmp"
	"time"

	"github.com/kv8s/curl-me-that/proto/condition"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

// State of a key.
type State string

// The states.
const (
	// OK: fetched and written.
	OK State = "ok"
	// Fetched: fetched. The object was not read, so it is unknown whether the key is written.
	Fetched State = "fetched"
	// Pending: a fetch or a write is due and has not happened yet.
	Pending State = "pending"
	// Failing: the last fetch failed, or the annotation is invalid.
	Failing State = "failing"
	// Refused: the API server or another owner keeps the key from being written.
	Refused State = "refused"
	// Contested: another field manager keeps its value in the key.
	Contested State = "contested"
	// Ignored: the watcher ignores the object.
	Ignored State = "ignored"
	// Stale: the regular fetch is long overdue.
	Stale State = "stale"
)

// Reasons of Pending and Stale. Failing and Refused have the reasons of Events.
const (
	// Unpublished: the watcher has not published the want yet.
	Unpublished = "Unpublished"
	// Backlog: no fetcher has taken the request yet.
	Backlog = "Backlog"
	// Parked: the host or the namespace had no free slot, or the host asked for a pause.
	Parked = "Parked"
	// NotWritten: the writer has not written the body yet.
	NotWritten = "NotWritten"
	// Retry: the fetch failed and is tried again. The failure was not reported yet.
	Retry = "Retry"
	// Overdue: the timer should have fired.
	Overdue = "Overdue"
	// Outdated: there was no good fetch for condition.StaleIntervals.
	Outdated = "Outdated"
)

// Condition is the state of a key with its details.
type Condition struct {
	State  State  `json:"state"`
	Reason string `json:"reason,omitempty"`
	// Message is the message of the Event, or why the object is ignored. It may be empty.
	Message string `json:"message,omitempty"`
	// Status is the HTTP status of the last attempt if it failed (0: no response).
	Status int32 `json:"status,omitempty"`
	// Since is the start of the state, if it is known.
	Since time.Time `json:"since,omitzero"`
	// Next is the time of the next attempt (zero: none is planned).
	Next time.Time `json:"nextTry,omitzero"`
	// Attempts counts the failed attempts of this round.
	Attempts uint32 `json:"attempts,omitempty"`
	// Checked is the time of the last attempt, if it is known.
	Checked time.Time `json:"lastChecked,omitzero"`
	// Stale: no good fetch for condition.StaleIntervals, whatever the state.
	Stale bool `json:"stale,omitempty"`
	// WaitsFor is the obstacle to the next attempt (empty: it waits only for its time).
	WaitsFor string `json:"waitsFor,omitempty"`
}

// Good reports whether there is nothing to wait for or to fix.
func (c Condition) Good() bool { return c.State == OK || c.State == Fetched || c.State == Ignored }

// Fetch is the state of a key in the streams.
type Fetch struct {
	URL     string
	Refresh time.Duration
	// Wanted is the time of the want, and Taken whether a fetcher has taken it.
	Wanted time.Time
	Taken  bool
	// Due is the payload of the timer, set at SetAt to fire at At (nil: the want has none).
	Due       *v1.Due
	At, SetAt time.Time
	// Fired means that the timer has fired, and no fetcher has taken the due yet.
	Fired bool
	// Audited means that the audit requested the key, because its body had not landed.
	Audited bool
}

// Write is the state of a key in the status of its object.
type Write struct {
	// Ignored says why the watcher ignores the object (empty: it does not).
	Ignored string
	// URL that fails, or of the body in the key (empty: the status has no entry for the key).
	URL string
	// Written means that the key has a body of URL, with the digest SHA256.
	Written bool
	SHA256  string
	// Contested says which manager changed the value since (empty: none).
	Contested string
	// The remaining fields describe the failure. An empty Reason means that there is none.
	Reason, Message string
	Status          int32
	Since, Next     time.Time
	Attempts        uint32
}

// Of returns the condition of a key. Fetch is nil without a want, and write is nil if the object was not read.
func Of(fetch *Fetch, write *Write, now time.Time) Condition {
	c := Condition{State: Pending, Reason: Unpublished}
	if fetch != nil {
		c = fetch.condition(now)
	}
	switch {
	case write == nil && c.State == OK:
		c.State = Fetched
	case write == nil:
	case write.Ignored != "":
		return Condition{State: Ignored, Message: write.Ignored}
	case c.State == Failing && c.Reason == write.Reason:
		c.Message, c.Attempts = write.Message, max(c.Attempts, write.Attempts)
	case c.State == Failing:
	case write.Reason != "" && (fetch == nil || write.URL == fetch.URL):
		return c.failed(fetch, write)
	case write.Contested != "":
		c.State, c.Reason, c.Message, c.Since = Contested, pipeline.ReasonContested, write.Contested, time.Time{}
	case c.State == OK && !write.landed(fetch):
		c.State, c.Reason, c.Since = Pending, NotWritten, c.Checked
		if fetch.Audited {
			class := v1.FailureClass_FAILURE_CLASS_WRITE_FAILED
			c.State, c.Reason, c.Message = Refused, pipeline.Reason(class), condition.Unwritten(class, fetch.URL, "", 0)
		}
	}
	return c
}

// landed reports whether the newest body is written.
func (w *Write) landed(fetch *Fetch) bool {
	newest := fetch.Due.GetCached().GetSha256()
	return w.Written && w.URL == fetch.URL && (newest == "" || newest == w.SHA256)
}

// failed returns the condition of a key that fails according to the object, but not according to the streams.
func (c Condition) failed(fetch *Fetch, write *Write) Condition {
	state := Failing
	switch {
	case pipeline.RefusesWrite(pipeline.ClassOf(write.Reason)):
		state = Refused
	case fetch != nil && (fetch.Due != nil || !fetch.Taken): // the streams are newer
		if c.State == OK {
			c.State, c.Reason, c.Since = Pending, NotWritten, c.Checked
		}
		return c
	}
	next := c.Next
	if next.IsZero() {
		next = write.Next
	}
	return Condition{
		State: state, Reason: write.Reason, Message: write.Message, Status: write.Status, Since: write.Since, Next: next,
		Attempts: write.Attempts, Checked: c.Checked, Stale: c.Stale,
	}
}

// lateTimer is the delay after which a timer counts as overdue. A healthy server is faster.
const lateTimer = time.Minute

// IsOverdue reports whether a timer should have fired.
func IsOverdue(now, at time.Time) bool { return now.Sub(at) > lateTimer }

// condition returns the condition according to the streams.
func (f *Fetch) condition(now time.Time) Condition {
	due := f.Due
	if due == nil {
		if !f.Taken {
			return Condition{State: Pending, Reason: Backlog, Since: f.Wanted}
		}
		return Condition{State: OK}
	}
	c := Condition{
		State: OK, Next: f.At, Attempts: due.GetAttempts(), Checked: Checked(due, f.SetAt),
		Stale: condition.StaleDue(due, f.Refresh, now), WaitsFor: condition.WaitsFor(due.GetWaitsFor(), f.URL),
	}
	if f.Fired {
		c.Checked = time.Time{}
	}
	if due.GetFirstFailedAt() != nil {
		c.Since = due.GetFirstFailedAt().AsTime()
	}
	fresh := due.GetFreshUntil()
	switch {
	case due.GetReported() != v1.FailureClass_FAILURE_CLASS_UNSPECIFIED:
		c.State, c.Reason, c.Status = Failing, pipeline.Reason(due.GetReported()), due.GetStatusCode()
	case f.Fired:
		c.State, c.Reason, c.Since = Pending, Backlog, f.At
	case IsOverdue(now, f.At):
		c.State, c.Reason, c.Since = Stale, Overdue, f.At
	case due.GetCause() == v1.Cause_CAUSE_PARKED:
		c.State, c.Reason, c.Since = Pending, Parked, f.SetAt
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

// Compare orders failing before refused, contested, stale and pending keys, and then the oldest first.
func Compare(a, b Condition) int {
	order := map[State]int{Failing: 1, Refused: 2, Contested: 3, Stale: 4, Pending: 5, Fetched: 6, OK: 7, Ignored: 8}
	return cmp.Or(cmp.Compare(order[a.State], order[b.State]), a.Since.Compare(b.Since))
}
