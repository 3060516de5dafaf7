// Package keystate answers one question: in what state is a key? Watcher, curlctl and keeper all ask it. The states and
// their transitions are drawn in deploy/docs/architecture.md.
package keystate

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kv8s/curl-me-that/proto/annotation"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/rule"
	"github.com/kv8s/curl-me-that/proto/sentence"
	"github.com/kv8s/curl-me-that/proto/status"
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
	// Outdated: there was no good fetch for pipeline.StaleIntervals.
	Outdated = "Outdated"
	// NotRead: the body was fetched. The object was not read, so it is unknown whether the key has it.
	NotRead = "NotRead"
)

// Reasons returns the reasons that are not failures.
func Reasons() []string {
	return []string{
		Unpublished, Backlog, Parked, NotWritten, Retry, Overdue, Outdated, NotRead, pipeline.ReasonDrifted,
		pipeline.ReasonUpdateAvailable,
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
	// Stale: no good fetch for pipeline.StaleIntervals, whatever the state.
	Stale bool `json:"stale,omitempty"`
	// WaitsFor is the obstacle to the next attempt (empty: it waits only for its time).
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
	// SHA256 is the required digest (empty: any), and Rules the digest of rules and selection (empty: none).
	SHA256, Rules string
	// Refresh is the interval (0: fetch once).
	Refresh time.Duration
	// Ignored says why the watcher ignores the object, and Invalid what is wrong with the annotation (empty: nothing).
	Ignored, Invalid string
}

// SpecOf returns what the annotations of an object request for a key.
func SpecOf(r annotation.Request, pair annotation.Pair) Spec {
	spec := Spec{
		Key: pair.Key, URL: pair.URL, SHA256: r.SHA256[pair.Key], Rules: r.Rules[pair.Key].Digest(),
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
		Key: w.GetKey(), URL: w.GetUrl(), SHA256: w.GetSha256(), Rules: rule.Of(w).Digest(),
		Refresh: w.GetRefresh().AsDuration(),
	}
}

// Of returns the state of a key with its details. o is nil if the object was not read, or s if the streams were not.
func Of(spec Spec, o *View, s *Streams, now time.Time) Condition {
	if o == nil {
		c := s.condition(spec, now)
		if c.State == OK {
			c.Reason = NotRead
		}
		return c
	}
	shown := o.condition(spec, now)
	if s == nil || shown.State == Ignored || spec.Invalid != "" {
		return shown
	}
	c := s.condition(spec, now)
	if c.State == Failing && shown.State == Failing && !shown.Since.IsZero() && shown.Since.Before(c.Since) {
		c.Since = shown.Since // NATS was replaced since
	}
	switch {
	case c.State == Failing && shown.Reason == c.Reason:
		c.Message, c.Attempts = shown.Message, max(c.Attempts, shown.Attempts)
	case c.State == Failing: // the object does not show the newest failure yet
	case shown.State == Refused, shown.State == Failing && o.Entry.ByWriter(),
		shown.State == Failing && s.Due == nil && (s.Taken || !s.Wanted):
		if !c.Next.IsZero() {
			shown.Next = c.Next
		}
		shown.LastAttempt, shown.Stale = c.LastAttempt, shown.Stale || c.Stale
		return shown
	case shown.State == Contested:
		c.State, c.Reason, c.Message, c.Since = Contested, shown.Reason, shown.Message, time.Time{}
	case c.State != OK:
	case shown.State == HeldBack:
		c.State, c.Reason, c.Message = HeldBack, shown.Reason, shown.Message
	case shown.State == OK && (s.Newest == "" || s.Newest == o.Entry.SHA256):
	case s.Audited && shown.State != Failing:
		class := v1.FailureClass_FAILURE_CLASS_WRITE_FAILED
		c.State, c.Reason, c.Since = Refused, pipeline.Reason(class), c.LastAttempt
		c.Message = sentence.Unwritten(class, spec.URL, "", 0)
	default:
		c.State, c.Reason, c.Since = Pending, NotWritten, c.LastAttempt
		if shown.State == Pending {
			c.Reason = shown.Reason
		}
	}
	return c
}

// View is what the metadata of an object shows about a key.
type View struct {
	UID   types.UID
	Entry status.Entry
	Owner annotation.Ownership
	// Other is the annotation of another installation that asked for the key (empty: none).
	Other string
}

// Value is what an object shows about the value of a key, whether or not later attempts fail.
type Value int

const (
	// Missing: the key lacks the requested body.
	Missing Value = iota
	// Held: the key has the requested body, and nobody else has written it since.
	Held
	// Drifted: the key had the requested body, and was removed or changed since.
	Drifted
	// Foreign: the key belongs to somebody else, or to another installation.
	Foreign
	// Copied: the status was written on another object, as after a restore. Only the value shows whether it is ours.
	Copied
)

// Value returns what the object shows about the value of a key.
func (v View) Value(spec Spec) Value {
	e := v.Entry
	matches := e.URL == spec.URL && e.Available == ""
	if spec.SHA256 != "" {
		matches = (e.URL == spec.URL || e.URL == "") && e.SHA256 == spec.SHA256
	}
	matches = matches && e.Rules == spec.Rules
	switch {
	case v.Other != "", !e.HasBody() && v.Owner.State == annotation.Foreign:
		return Foreign
	case e.Copied(v.UID):
		return Copied
	case !e.HasBody() || !matches:
		return Missing
	case v.Owner.State != annotation.Ours && v.Owner.Fingerprint != e.Drift:
		return Drifted
	}
	return Held
}

// condition returns the state of a key according to its object alone.
func (v View) condition(spec Spec, now time.Time) Condition {
	if spec.Ignored != "" {
		return Condition{State: Ignored, Message: spec.Ignored}
	}
	if spec.Invalid != "" {
		return Condition{
			State: Failing, Reason: pipeline.Reason(v1.FailureClass_FAILURE_CLASS_INVALID_ANNOTATION), Message: spec.Invalid,
		}
	}
	e, value := v.Entry, v.Value(spec)
	if e.Copied(v.UID) {
		e = status.Entry{}
	}
	exists := pipeline.Reason(v1.FailureClass_FAILURE_CLASS_KEY_EXISTS)
	switch {
	case value == Foreign && (v.Other != "" || e.Error != exists || e.FailingURL() != spec.URL):
		c := Condition{State: Refused, Reason: exists, Message: sentence.KeyExists(spec.Key)}
		if v.Other != "" {
			c.Message = sentence.KeyOfOther(spec.Key, v.Other)
		}
		return c
	case e.Failing() && e.FailingURL() == spec.URL:
		why := e.Why()
		c := Condition{
			State: Failing, Reason: e.Error, Message: why.Message, Status: why.HTTPStatus, Since: e.Since, Next: why.NextTry,
			Attempts: e.Attempts, Stale: pipeline.FailsForLong(e.Since, spec.Refresh, now),
		}
		if e.Refused() {
			c.State = Refused
		}
		return c
	case e.HasBody() && v.Owner.State == annotation.Foreign && v.Owner.Fingerprint != e.Drift:
		return Condition{
			State: Contested, Reason: pipeline.ReasonDrifted, Message: sentence.Contested(spec.Key, v.Owner.Manager()),
		}
	case value != Drifted && e.Available != "" && spec.SHA256 != "" && spec.SHA256 != e.Available:
		return Condition{
			State: HeldBack, Reason: pipeline.ReasonUpdateAvailable, Message: sentence.UpdateAvailable(spec.URL, e.Available),
		}
	case value == Held:
		return Condition{State: OK}
	case value == Drifted:
		return Condition{State: Pending, Reason: pipeline.ReasonDrifted}
	}
	return Condition{State: Pending, Reason: NotWritten}
}

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
func (s *Streams) condition(spec Spec, now time.Time) Condition {
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
		State: OK, Next: s.At, Attempts: due.GetAttempts(), LastAttempt: LastAttempt(due, s.SetAt),
		Stale: pipeline.StaleDue(due, spec.Refresh, now), WaitsFor: sentence.WaitsFor(due.GetWaitsFor(), spec.URL),
	}
	if s.Fired {
		c.LastAttempt = time.Time{}
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

// LastAttempt returns the time of the last attempt, at which the timer was set. It is zero if the timer
// was set without an attempt.
func LastAttempt(due *v1.Due, setAt time.Time) time.Time {
	tried := due.GetFreshUntil() != nil || due.GetFirstFailedAt() != nil
	if due.GetCause() == v1.Cause_CAUSE_PARKED || !tried {
		return time.Time{}
	}
	return setAt
}
