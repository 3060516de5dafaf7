// Package keystate answers one question: in what state is a key? Watcher, curlctl and keeper all ask it. The states and
// their transitions are drawn in deploy/docs/architecture.md.
package keystate

import (
	"cmp"
	"slices"
	"time"

	"github.com/kv8s/curl-me-that/proto/annotation"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/failure"
	"github.com/kv8s/curl-me-that/proto/rule"
	"github.com/kv8s/curl-me-that/proto/sentence"
)

// State of a key.
type State string

// The states.
const (
	// OK: the key has the body that the annotation asks for.
	OK State = "ok"
	// Pending: a fetch or a write is due and has not happened yet.
	Pending State = "pending"
	// Stale: the regular fetch is long overdue.
	Stale State = "stale"
	// Failing: the last fetch failed, or the annotation is invalid. The last good value stays.
	Failing State = "failing"
	// Refused: the API server or another owner keeps the key from being written.
	Refused State = "refused"
	// Contested: another field manager has changed the key, and the writer has not repaired it yet.
	Contested State = "contested"
	// HeldBack: the URL has other content than the one to which the key is pinned. It waits for the approval.
	HeldBack State = "held_back"
	// Ignored: the watcher ignores the object.
	Ignored State = "ignored"
)

// States returns all states, the worst first.
func States() []State {
	return []State{Failing, Refused, Contested, Stale, Pending, HeldBack, OK, Ignored}
}

// Reasons of Pending, Stale and OK. Failing, Refused and Contested have the reasons of Events, and so has a pending key
// that was removed (Drifted).
const (
	// Unpublished: the watcher has not published the want yet.
	Unpublished = "Unpublished"
	// Backlog: no fetcher has taken the request yet.
	Backlog = "Backlog"
	// Parked: the host or the namespace had no free slot or had used up a budget, or the host asked for a pause.
	Parked = "Parked"
	// NotWritten: the writer has not written the body yet.
	NotWritten = "NotWritten"
	// Retry: the fetch failed and is tried again. The failure was not reported yet.
	Retry = "Retry"
	// Overdue: the timer should have fired.
	Overdue = "Overdue"
	// Outdated: there was no good fetch for failure.StaleIntervals.
	Outdated = "Outdated"
	// NotRead: the body was fetched. The object was not read, so it is unknown whether the key has it.
	NotRead = "NotRead"
)

// Reasons returns the reasons that are not failures.
func Reasons() []string {
	return []string{
		Unpublished, Backlog, Parked, NotWritten, Retry, Overdue, Outdated, NotRead, failure.ReasonDrifted,
		failure.ReasonUpdateAvailable,
	}
}

// Bad reports whether somebody must act: the key is failing, refused or contested.
func (s State) Bad() bool { return s == Failing || s == Refused || s == Contested }

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
	// LastAttempt is the time of the last attempt, if it is known.
	LastAttempt time.Time `json:"lastChecked,omitzero"`
	// Stale: no good fetch for failure.StaleIntervals, whatever the state.
	Stale bool `json:"stale,omitempty"`
	// WaitsFor is what the next attempt waits for (empty: only for its time).
	WaitsFor string `json:"waitsFor,omitempty"`
}

// Good reports whether there is nothing to wait for or to fix.
func (c Condition) Good() bool { return c.State == OK || c.State == HeldBack || c.State == Ignored }

// Compare orders by state, the worst first, and then the oldest first.
func Compare(a, b Condition) int {
	order := func(c Condition) int { return slices.Index(States(), c.State) }
	return cmp.Or(cmp.Compare(order(a), order(b)), a.Since.Compare(b.Since))
}

// Spec is the request for a key.
type Spec struct {
	Key, URL string
	// SHA256 is the required digest (empty: any), and Rules the hash of rules and selection (empty: none).
	SHA256, Rules string
	// Refresh is the interval (0: fetch once).
	Refresh time.Duration
	// Ignored says why the watcher ignores the object, and Invalid what is wrong with the annotation (empty: nothing).
	Ignored, Invalid string
}

// SpecOf returns what the annotations of an object request for a key.
func SpecOf(r annotation.Request, pair annotation.Pair) Spec {
	spec := Spec{
		Key: pair.Key, URL: pair.URL, SHA256: r.SHA256[pair.Key], Rules: r.Rules[pair.Key].Hash(),
		Refresh: r.Interval(pair.Key),
	}
	if r.Suspended {
		spec.Ignored = "it is suspended"
	}
	return spec
}

// SpecOfWant returns what a want requests for its key.
func SpecOfWant(w *v1.Want) Spec {
	return Spec{
		Key: w.GetKey(), URL: w.GetUrl(), SHA256: w.GetSha256(), Rules: rule.SetOf(w).Hash(),
		Refresh: w.GetRefresh().AsDuration(),
	}
}

// Of returns the state of a key with its details. o is nil if the object was not read, or s if the streams were not.
// The cases are in the order of their precedence.
func Of(spec Spec, o *View, s *Streams, now time.Time) Condition {
	s = cmp.Or(s, &Streams{Wanted: true, Taken: true}) // as if nothing was under way
	shown := cmp.Or(o, &View{})
	entry, value, trouble := shown.entry(), shown.Value(spec), shown.trouble(spec, now)
	due, c := s.Due, s.fetches(spec, now)
	is := func(state State, reason string, since time.Time) Condition {
		c.State, c.Reason, c.Since = state, reason, since
		return c
	}
	switch {
	// Nothing is fetched, whatever was before.
	case spec.Ignored != "":
		return Condition{State: Ignored, Message: spec.Ignored}
	case spec.Invalid != "":
		invalid := failure.Reason(failure.InvalidAnnotation)
		return Condition{State: Failing, Reason: invalid, Message: spec.Invalid}

	// The timer has the newest failure, before the writer reports it in the object.
	case due.GetReported() != failure.Unspecified:
		return s.failing(c, trouble)
	// The object shows trouble. If the writer found it, the streams do not show it. A failed fetch counts until the
	// streams have something newer: a timer without the failure, or a want that no fetcher has taken.
	case trouble.State == Refused, trouble.State == Failing && (entry.ByWriter() || due == nil && (s.Taken || !s.Wanted)):
		trouble.Next, trouble.LastAttempt = cmp.Or(c.Next, trouble.Next), c.LastAttempt
		trouble.Stale = trouble.Stale || c.Stale
		return trouble
	// A fetch alone does not end the conflict with the other manager.
	case trouble.State == Contested:
		c.Message = trouble.Message
		return is(Contested, trouble.Reason, time.Time{})

	// The next fetch replaces what the object shows.
	case !s.Wanted:
		return is(Pending, Unpublished, time.Time{})
	case due == nil && !s.Taken:
		return is(Pending, Backlog, s.WantedAt)
	case s.Fired:
		return is(Pending, Backlog, s.At)
	case due != nil && IsOverdue(now, s.At):
		return is(Stale, Overdue, s.At)
	case due.GetCause() == v1.Cause_CAUSE_PARKED:
		return is(Pending, Parked, s.SetAt)
	case due.GetAttempts() > 0, due.GetCause() == v1.Cause_CAUSE_RETRY, due.GetCause() == v1.Cause_CAUSE_REPLAY:
		return is(Pending, Retry, c.Since)
	case c.Stale && due == nil:
		return is(Stale, Outdated, time.Time{})
	case c.Stale && due.GetFreshUntil() != nil:
		return is(Stale, Outdated, due.GetFreshUntil().AsTime())

	// The last fetch was good. The object shows what the writer made of it.
	case o == nil:
		return is(OK, NotRead, c.Since)
	case trouble.State == Failing: // it has not reported the recovery yet
		return is(Pending, NotWritten, c.LastAttempt)
	case value != Drifted && entry.Available != "" && spec.SHA256 != "" && spec.SHA256 != entry.Available:
		c.Message = sentence.UpdateAvailable(spec.URL, entry.Available)
		return is(HeldBack, failure.ReasonUpdateAvailable, c.Since)
	case value == Held && (s.Newest == "" || s.Newest == entry.SHA256):
		return is(OK, "", c.Since)
	case s.NotLanding: // the body was fetched again, and has not landed either
		class := failure.WriteFailed
		c.Message = sentence.Unwritten(class, spec.URL, "", 0)
		return is(Refused, failure.Reason(class), c.LastAttempt)
	case value == Drifted:
		return is(Pending, failure.ReasonDrifted, c.LastAttempt)
	default:
		return is(Pending, NotWritten, c.LastAttempt)
	}
}
