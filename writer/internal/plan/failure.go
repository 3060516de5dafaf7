package plan

import (
	"time"

	"github.com/kv8s/curl-me-that/proto/annotation"
	"github.com/kv8s/curl-me-that/proto/condition"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/status"
)

// failure decides on a fetch that failed. It never touches a value.
func (b *builder) failure(i Item, f *v1.Failure) Decision {
	key := i.Key.Key
	if !b.object.asks(key, i.url(), "") {
		return Decision{Verdict: Stale}
	}
	entry := b.status.Keys[key]
	if owner := b.owner(key); !entry.Written() && b.isForeign(key, owner) {
		return b.keyExists(i)
	}
	since := i.observed()
	if at := f.GetFirstFailedAt(); at != nil {
		since = at.AsTime().UTC().Truncate(time.Second)
	}
	next := failing(entry, i.url(), pipeline.Reason(f.GetClass()), since)
	next.Attempts, next.GaveUp, next.Fence = f.GetAttempts(), f.GetGaveUp(), i.Fence
	next.Explanation = explain(i, f, next.Since)
	// A later row of failures means that all was well in between, unless it
	// only began because the watcher asked again.
	another := since.After(entry.Since) && i.Result.GetCause() != v1.Cause_CAUSE_AUDIT
	changed := !sameState(entry, next) || b.unexplained(key, entry, next)
	event := failed(i, next, actionFetch, failureNote(i, f, next))
	event.Again = i.Result.GetObservedAt().AsTime()
	switch {
	case changed:
		b.set(key, next)
		return Decision{Verdict: Written, Events: []Event{event}}
	case f.GetAgain(): // nothing has changed but when it was last seen
		return Decision{Verdict: Unchanged, Events: []Event{event}}
	case another:
		b.set(key, next)
		return Decision{Verdict: Written}
	}
	return Decision{Verdict: Unchanged}
}

// unexplained reports whether an older writer has written the entry of a key that
// fails, without the explanation that next has, and there is room for that.
func (b *builder) unexplained(key string, entry, next status.Entry) bool {
	if entry.Explanation != nil || !next.GaveUp {
		return false
	}
	with := b.status.Clone()
	with.Keys[key] = next
	return len(with.String()) <= b.object.Room
}

// explain returns what the status keeps of a failure in a row of them.
func explain(i Item, f *v1.Failure, since time.Time) *status.Explanation {
	why := &status.Explanation{
		HTTPStatus: f.GetStatusCode(), Message: condition.Sentence(i.url(), f), WaitsFor: condition.WaitsFor(f.GetWaitsFor(), i.url()),
		Terminal: condition.Terminal(i.url(), f),
	}
	if at := f.GetNextAt(); at != nil {
		why.NextTry = at.AsTime()
	}
	// Not cut to the second, as since is: what the fetcher publishes for this alone is stale.
	now := i.Result.GetObservedAt().AsTime()
	why.Stale = f.GetGaveUp() && condition.FailsForLong(since, i.Result.GetWant().GetRefresh().AsDuration(), now)
	return why
}

// isForeign reports whether a key that we never wrote holds a value of another
// field manager.
func (b *builder) isForeign(key string, owner annotation.Ownership) bool {
	switch owner.State {
	case annotation.Foreign:
		return true
	case annotation.Unknown:
		_, exists := b.digest(key)
		return exists
	default:
		return false
	}
}

// keyExists decides on a key that belongs to another field manager and that we
// never wrote.
func (b *builder) keyExists(i Item) Decision {
	decision := b.obstacle(i, NotOurs, keyExists)
	for n := range decision.Events {
		decision.Events[n].Occurrence = keyExistsOccurrence(i)
	}
	return decision
}

// refuseBody decides on a body that the object cannot take.
func (b *builder) refuseBody(i Item) Decision {
	switch b.object.Obstacle {
	case Immutable:
		return b.obstacle(i, Refused, immutable)
	case TooLarge:
		return b.obstacle(i, Refused, bodyTooLarge)
	default:
		return b.obstacle(i, Refused, writeFailed)
	}
}

// obstacle records why a body was not written. Of a write that the API server
// rejects the fence is not recorded, so that the same result may be applied once
// the server takes it. Its Event is emitted with each result: the recorder writes
// it again only when the one before has expired.
func (b *builder) obstacle(i Item, verdict Verdict, class v1.FailureClass) Decision {
	entry := b.status.Keys[i.Key.Key]
	next := failing(entry, i.url(), pipeline.Reason(class), i.observed())
	if class != writeFailed {
		next.GaveUp, next.Fence = true, i.Fence
	}
	note := obstacleNote(i, next, b.object.Obstacle)
	next.Explanation = &status.Explanation{Message: note}
	decision := Decision{Verdict: verdict}
	changed := !sameFailure(entry, next)
	if changed || class == writeFailed {
		decision.Events = []Event{failed(i, next, actionWrite, note)}
	}
	if changed {
		b.set(i.Key.Key, next)
	}
	return decision
}

// failing returns entry as it is while url fails. A row of failures of one URL
// goes on when its reason changes, except that a key of somebody else was not fetched.
func failing(entry status.Entry, url, reason string, since time.Time) status.Entry {
	occupied := pipeline.Reason(keyExists)
	sameRow := (entry.Error == occupied) == (reason == occupied)
	if sameRow && entry.FailingURL() == url && !entry.Since.IsZero() && entry.Since.Before(since) {
		since = entry.Since
	}
	entry.Error, entry.ErrorURL, entry.Since = reason, url, since
	entry.Attempts, entry.GaveUp, entry.Explanation = 0, false, nil
	return entry
}

// sameState reports whether a person would act alike on two entries that fail: on
// reason and URL, on whether it is still tried, and once it is given up on the
// HTTP status, on whether it is stale by it and on whether
// only an edit helps. Attempts, times and words are no change of state.
func sameState(a, b status.Entry) bool {
	if !sameFailure(a, b) || a.GaveUp != b.GaveUp {
		return false
	}
	return !b.GaveUp || a.Explanation == nil || a.HTTPStatus == b.HTTPStatus && a.Stale == b.Stale && a.Terminal == b.Terminal
}

// sameFailure reports whether two entries fail alike.
func sameFailure(a, b status.Entry) bool {
	return a.Error == b.Error && a.FailingURL() == b.FailingURL()
}
