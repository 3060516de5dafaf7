// Package keystate answers one question: in what state is a key? Watcher, curlctl and keeper all ask it. The states and
// their transitions are drawn in deploy/docs/architecture.md.
package keystate

import (
	"cmp"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kv8s/curl-me-that/proto/annotation"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/failure"
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
	// The streams do not show what the writer found. A failed fetch is over once they have a timer without it, or a want
	// that no fetcher has taken.
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

// View is what the metadata of an object shows about a key.
type View struct {
	UID   types.UID
	Entry status.Entry
	Owner annotation.Ownership
	// OtherAsker is the annotation of another installation that asked for the key (empty: none).
	OtherAsker string
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
	case v.OtherAsker != "", !e.HasBody() && v.Owner.State == annotation.Foreign:
		return Foreign
	case e.Copied(v.UID):
		return Copied
	case !e.HasBody() || !matches:
		return Missing
	case v.Owner.State != annotation.Ours && v.Owner.Fingerprint != e.CheckedFingerprint:
		return Drifted
	}
	return Held
}

// Holds reports whether the key has the body with that digest, of any URL and rules.
func (v View) Holds(digest string) bool {
	return v.Value(Spec{URL: v.Entry.URL, SHA256: digest, Rules: v.Entry.Rules}) == Held
}

// entry returns the status of the key. An entry of another object says nothing.
func (v View) entry() status.Entry {
	if v.Entry.Copied(v.UID) {
		return status.Entry{}
	}
	return v.Entry
}

// trouble returns the condition of a key that is failing, refused or contested according to its object. Others have no
// State.
func (v View) trouble(spec Spec, now time.Time) (c Condition) {
	e, exists := v.entry(), failure.Reason(failure.KeyExists)
	failing := e.Failing() && e.FailingURL() == spec.URL
	switch {
	case v.OtherAsker != "":
		return Condition{State: Refused, Reason: exists, Message: sentence.KeyOfOther(spec.Key, v.OtherAsker)}
	case v.Value(spec) == Foreign && (!failing || e.Error != exists): // the status does not say so yet
		return Condition{State: Refused, Reason: exists, Message: sentence.KeyExists(spec.Key)}
	case failing:
		why := e.Why()
		c = Condition{
			State: Failing, Reason: e.Error, Message: why.Message, Status: why.HTTPStatus, Since: e.Since, Next: why.NextTry,
			Attempts: e.Attempts, Stale: failure.FailsForLong(e.Since, spec.Refresh, now),
		}
		if e.Refused() {
			c.State = Refused
		}
	case e.HasBody() && v.Owner.State == annotation.Foreign && v.Owner.Fingerprint != e.CheckedFingerprint:
		message := sentence.Contested(spec.Key, v.Owner.Manager())
		return Condition{State: Contested, Reason: failure.ReasonDrifted, Message: message}
	}
	return c
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

// ConfigMap is what the metadata of a ConfigMap shows to one installation.
type ConfigMap struct {
	UID types.UID
	// Request is the content of the annotations, and Invalid the error if they are invalid.
	Request annotation.Request
	Invalid error
	// Status has the entries of this installation, and Others has the entries of other installations. Both are empty
	// if the status is Unreadable.
	Status, Others status.Status
	Unreadable     bool
	// Owners are unknown if managedFields are unreadable.
	Owners annotation.Owners
}

// Read returns what metadata shows to an installation with this grammar.
func Read(g *annotation.Grammar, m *metav1.ObjectMeta) ConfigMap {
	c := ConfigMap{UID: m.UID}
	c.Request, c.Invalid = g.ParseObject(m)
	written, err := status.Parse(m.Annotations[annotation.StatusKey])
	c.Status, c.Others = written.Split(g, c.Request, m.Annotations)
	c.Unreadable = err != nil
	c.Owners, _ = annotation.ParseOwners(m.ManagedFields)
	return c
}

// Concerns reports whether a key is annotated or in the status.
func (c *ConfigMap) Concerns(key string) bool {
	_, written := c.Status.Keys[key]
	_, asked := c.Request.URL(key)
	return written || asked
}

// View returns what the ConfigMap shows about a key.
func (c *ConfigMap) View(key string) *View {
	return &View{UID: c.UID, Entry: c.Status.Keys[key], Owner: c.Owners.Of(key), OtherAsker: c.Others.Askers()[key]}
}
