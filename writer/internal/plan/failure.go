package plan

import (
	"cmp"
	"time"

	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/failure"
	"github.com/kv8s/curl-me-that/proto/sentence"
	"github.com/kv8s/curl-me-that/proto/status"
)

// failure handles a failed fetch. It never touches a value.
func (b *builder) failure(i Item, f *v1.Failure) Decision {
	key := i.Key.Key
	if !b.object.asks(i, "") {
		return Decision{Outcome: Late}
	}
	if b.foreign(key) {
		return b.recordObstacle(i, KeyExists, failure.KeyExists)
	}
	entry := b.status.Keys[key]
	since := i.observed()
	if at := f.GetFirstFailedAt(); at != nil {
		since = at.AsTime().UTC().Truncate(time.Second)
	}
	next := failing(entry, i.url(), failure.Reason(f.GetClass()), since)
	next.Attempts, next.GaveUp, next.Fence = f.GetAttempts(), f.GetGaveUp(), i.Fence
	next.Explanation = explain(i, f, next.Since)
	// A later start means that the key recovered in between, unless the watcher's audit started the
	// round.
	another := since.After(entry.Since) && i.Result.GetCause() != v1.Cause_CAUSE_AUDIT
	reworded := f.GetAgain() && entry.Why().Message != "" && entry.Why().Message != next.Message
	changed := !sameState(entry, next) || b.unexplained(key, entry, next) || reworded
	event := failureEvent(i, next, actionFetch, failureNote(i, f, next))
	event.Again = i.Result.GetObservedAt().AsTime()
	switch {
	case changed:
		b.set(key, next)
		return Decision{Outcome: Written, Events: []Event{event}}
	case f.GetAgain(): // only its last occurrence is new
		return Decision{Outcome: Unchanged, Events: []Event{event}}
	case another:
		b.set(key, next)
		return Decision{Outcome: Written}
	}
	return Decision{Outcome: Unchanged}
}

// unexplained reports whether the status had no room for the explanation in next, and has it now.
func (b *builder) unexplained(key string, entry, next status.Entry) bool {
	if entry.Explanation != nil || !next.GaveUp {
		return false
	}
	with := b.status.With(b.object.Others)
	with.Keys[key] = next
	return len(with.String()) <= b.object.Room
}

// explain returns the explanation of a failure for the status.
func explain(i Item, f *v1.Failure, since time.Time) *status.Explanation {
	why := &status.Explanation{
		HTTPStatus: f.GetStatusCode(), Message: sentence.Failure(i.Result.GetWant(), f), Rule: f.GetRule(),
		WaitsFor: sentence.WaitsFor(f.GetWaitsFor(), i.url()), Terminal: sentence.Terminal(i.url(), f),
	}
	if at := f.GetNextAt(); at != nil && !why.Terminal {
		why.NextTry = at.AsTime()
	}
	// Unlike since, this time is not truncated to the second. A failure that has just become stale would
	// not count as stale.
	now := i.Result.GetObservedAt().AsTime()
	why.Stale = f.GetGaveUp() && failure.FailsForLong(since, i.Result.GetWant().GetRefresh().AsDuration(), now)
	return why
}

// refusals are the failure classes of bodies that an object cannot hold. Other obstacles are of class
// failure.WriteFailed.
var refusals = map[Obstacle]v1.FailureClass{
	Immutable: failure.Immutable, TooLarge: failure.BodyTooLarge,
	ObjectTooLarge: failure.BodyTooLarge,
}

// recordRefusal records that the API server refuses a body.
func (b *builder) recordRefusal(i Item) Decision {
	return b.recordObstacle(i, Refused, cmp.Or(refusals[b.memory.Obstacle], failure.WriteFailed))
}

// recordObstacle records why a body was not written. If the API server rejected the write, the fence
// stays, so that the same result can be applied later. The recorder emits an Event again only when
// the previous one has expired.
func (b *builder) recordObstacle(i Item, outcome Outcome, class v1.FailureClass) Decision {
	entry := b.status.Keys[i.Key.Key]
	next := failing(entry, i.url(), failure.Reason(class), i.observed())
	if class != failure.WriteFailed {
		next.GaveUp, next.Fence = true, i.Fence
	}
	note := obstacleNote(i, next, b.memory.Obstacle)
	next.Explanation = &status.Explanation{Message: note}
	changed := !sameFailure(entry, next)
	again := entry.Fence.Compare(i.Fence) == 0 // perhaps because the dead letter of the page could not be stored
	decision := Decision{Outcome: outcome, NewPage: class == failure.ContentRejected && (changed || again)}
	if changed || class == failure.WriteFailed {
		decision.Events = []Event{failureEvent(i, next, actionWrite, note)}
	}
	if changed {
		b.set(i.Key.Key, next)
	}
	return decision
}

// failing returns entry while url fails. A failure of the same URL keeps its start when the reason
// changes, except from or to KeyExists, which is not a failed fetch.
func failing(entry status.Entry, url, reason string, since time.Time) status.Entry {
	foreign := failure.Reason(failure.KeyExists)
	sameKind := (entry.Error == foreign) == (reason == foreign)
	if sameKind && entry.FailingURL() == url && !entry.Since.IsZero() && entry.Since.Before(since) {
		since = entry.Since
	}
	entry.Error, entry.ErrorURL, entry.Since = reason, url, since
	entry.Attempts, entry.GaveUp, entry.Explanation = 0, false, nil
	return entry
}

// sameState reports whether two failing entries need the same action from a person: same reason,
// URL and given-up state, and once given up the same HTTP status, staleness and finality. Attempts,
// times and words do not count.
func sameState(a, b status.Entry) bool {
	if !sameFailure(a, b) || a.GaveUp != b.GaveUp {
		return false
	}
	return !b.GaveUp || a.Explanation == nil || a.HTTPStatus == b.HTTPStatus && a.Rule == b.Rule && a.Stale == b.Stale &&
		a.Terminal == b.Terminal
}

// sameFailure reports whether two entries fail with the same reason and URL, and both to be fetched or to be written.
func sameFailure(a, b status.Entry) bool {
	return a.Error == b.Error && a.FailingURL() == b.FailingURL() && a.Refused() == b.Refused()
}
