package plan

import (
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/failure"
	"github.com/kv8s/curl-me-that/proto/keystate"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/sentence"
	"github.com/kv8s/curl-me-that/proto/status"
)

// offered handles a body other than the one to which its key is pinned at an interval: the pin is the approval of its
// owner, so the body is only reported.
func (b *builder) offered(i Item, c *v1.Content) Decision {
	entry, request := b.status.Keys[i.Key.Key], b.object.Request
	next := entry.WithoutFailure()
	next.Available = c.GetSha256()
	switch {
	case !entry.HasBody():
		next.URL = i.url()
	case entry.SHA256 == request.SHA256[i.Key.Key]: // with the former URL or rules, nobody would notice a removed pin
		next.Rules = request.Rules[i.Key.Key].Hash()
		if entry.URL != i.url() {
			next.URL = ""
		}
	}
	if entry == next {
		return Decision{Outcome: Unchanged, Confirmed: true}
	}
	next.Fence = i.Fence
	d := b.recordHealthy(i, entry, next)
	d.Keep, d.Offered = true, true
	if entry.Available != next.Available {
		d.Events = append(d.Events, updateAvailable(i, entry.HasBody(), next.Available))
	}
	return d
}

// fillPins gives pinned keys the body of their digest, if the history has it, and reports whether there were any. The
// watcher asks for that when it sees the pin. If its message is lost or refused, for example while the writer has no
// permission, the audit has the key fetched, and fillPinOf fills the pin.
func (b *builder) fillPins(i Item, d *Decision) (changed bool) {
	for _, pair := range b.object.Request.Pairs {
		if b.holdsPin(pair.Key) && !b.status.Keys[pair.Key].Mismatched() {
			continue // another failure is not over
		}
		filled := b.fillPin(i, pair.Key)
		changed, d.Events = changed || filled.Outcome == Written, append(d.Events, filled.Events...)
	}
	return changed
}

// fillPinOf fills the pin of a key whose result does not have that body. over means that the result needs nothing else.
func (b *builder) fillPinOf(i Item) (d Decision, over bool) {
	pin := b.object.Request.SHA256[i.Key.Key]
	body, known := b.memory.History[pin]
	switch {
	case pin == "", b.holdsPin(i.Key.Key), pin == i.Result.GetContent().GetSha256(), !b.object.asks(i, ""):
		return d, false
	case !known && len(b.memory.History) >= pipeline.MaxPinsFilled:
		return Decision{Outcome: Deferred}, true
	case b.memory.Obstacle != "" && body != nil:
		return b.recordRefusal(i), true
	}
	d = b.fillPin(i, i.Key.Key)
	mismatch := i.Result.GetFailure().GetClass() == failure.DigestMismatch
	return d, d.Outcome == Written && mismatch
}

// holdsPin reports whether a key has the body of its digest, whether or not a fetch has failed since.
func (b *builder) holdsPin(key string) bool {
	shown := keystate.View{UID: b.object.UID, Entry: b.status.Keys[key], Owner: b.owner(key)}
	return shown.Holds(b.object.Request.SHA256[key])
}

// fillPin gives a pinned key the body of its digest, if the history has it. Otherwise the Decision has no Outcome.
// Nobody else is asked: the digest is the proof. The entry has no URL, because the body may be of a former one: without
// the pin, the key is fetched.
func (b *builder) fillPin(i Item, key string) Decision {
	pin, entry := b.object.Request.SHA256[key], b.status.Keys[key]
	_, others := b.object.Others.Keys[key]
	body, known := b.memory.History[pin]
	switch {
	case pin == "", others, !b.object.managed(), b.memory.Obstacle != "", entry.Copied(b.object.UID), b.foreign(key):
		return Decision{}
	case !known && len(b.need.History)+len(b.memory.History) < pipeline.MaxPinsFilled:
		b.need.History = append(b.need.History, pin)
		return Decision{}
	case body == nil: // the watcher publishes a want
		return Decision{}
	}
	value := valueOf(body)
	next := status.Entry{
		SHA256: pin, Size: int64(len(body)), ChangedAt: i.observed(), Binary: value.Binary, Fence: entry.Fence,
		Rules: b.object.Request.Rules[key].Hash(),
	}
	if i.Fence.Newer(next.Fence) {
		next.Fence = i.Fence
	}
	if entry.Available != pin {
		next.Available = entry.Available
	}
	b.values[key] = value
	b.set(key, next)
	return Decision{Outcome: Written, Events: []Event{pinned(i, key, pin)}}
}

// updateAvailable returns the Event for content that waits for the approval of the key's owner.
func updateAvailable(i Item, written bool, digest string) Event {
	return Event{
		Reason: failure.ReasonUpdateAvailable, Action: actionFetch,
		Note: sentence.UpdateAvailable(i.url(), digest) + "; " +
			sentence.Value(i.Key.Key, written) + " until curl-sha256 names that digest",
		Occurrence: i.Key.Key + "\x00" + digest,
	}
}

// pinned returns the Event for a key that got the body of its pin from the history.
func pinned(i Item, key, digest string) Event {
	return Event{
		Reason: failure.ReasonPinned, Action: actionWrite,
		Note:       "key " + key + " has the content of curl-sha256 again (" + digest + "), from the history",
		Occurrence: key + "\x00" + digest + "\x00" + i.Result.GetWant().GetResourceVersion(),
	}
}
