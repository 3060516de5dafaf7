package plan

import (
	"github.com/kv8s/curl-me-that/proto/annotation"
	"github.com/kv8s/curl-me-that/proto/condition"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/status"
)

// offered handles a body other than the one to which its key is pinned. With an interval the pin is the approval of
// its owner, so the body is only reported.
func (b *builder) offered(i Item, c *v1.Content) Decision {
	key := i.Key.Key
	if b.object.Request.Interval(key) <= 0 {
		return Decision{Verdict: Stale}
	}
	entry := b.status.Keys[key]
	if !entry.Written() && b.isForeign(key, b.owner(key)) {
		return b.obstacle(i, NotOurs, keyExists)
	}
	if entry.Available == c.GetSha256() && !entry.Failing() {
		return Decision{Verdict: Unchanged, Confirmed: true}
	}
	next := entry.Recovered()
	next.Available, next.Fence = c.GetSha256(), i.Fence
	if !entry.Written() {
		next.URL = i.url()
	}
	d := b.healthy(i, entry, next)
	d.Version, d.Available = true, true
	if entry.Available != next.Available {
		d.Events = append(d.Events, updateAvailable(i, entry.Written(), next.Available))
	}
	return d
}

// fulfilPins gives pinned keys the body of their digest, if the history has it, and reports whether there were any.
// Nobody else is asked: the digest is the proof.
func (b *builder) fulfilPins(i Item, d *Decision) (changed bool) {
	if !b.object.managed() || b.object.Obstacle != NoObstacle {
		return false
	}
	for _, pair := range b.object.Request.Pairs {
		pin, entry, owner := b.object.Request.SHA256[pair.Key], b.status.Keys[pair.Key], b.owner(pair.Key)
		_, others := b.object.Others.Keys[pair.Key]
		held := entry.SHA256 == pin && owner.State == annotation.Ours && !entry.Failing()
		if pin == "" || held || others || entry.Copied(b.object.UID) ||
			!entry.Written() && b.isForeign(pair.Key, owner) {
			continue
		}
		body, known := b.object.History[pin]
		switch {
		case !known && len(b.needHistory)+len(b.object.History) < pipeline.MaxFulfilled:
			b.needHistory = append(b.needHistory, pin)
			continue
		case body == nil: // the watcher publishes a want
			continue
		}
		value := valueOf(body)
		next := status.Entry{
			URL: pair.URL, SHA256: pin, Size: int64(len(body)), FetchedAt: i.observed(), Binary: value.Binary,
			Fence: entry.Fence, Rules: b.object.Request.Rules[pair.Key].Digest(),
		}
		if entry.Available != pin {
			next.Available = entry.Available
		}
		b.values[pair.Key] = value
		b.set(pair.Key, next)
		d.Events = append(d.Events, pinned(i, pair.Key, pin))
		changed = true
	}
	return changed
}

// updateAvailable returns the Event for content that waits for the approval of the key's owner.
func updateAvailable(i Item, written bool, digest string) Event {
	return Event{
		Reason: pipeline.ReasonUpdateAvailable, Action: actionFetch,
		Note: condition.UpdateAvailable(i.url(), digest) + "; " +
			condition.Value(i.Key.Key, written) + " until curl-sha256 names that digest",
		Occurrence: i.Key.Key + "\x00" + digest,
	}
}

// pinned returns the Event for a key that got the body of its pin from the history.
func pinned(i Item, key, digest string) Event {
	return Event{
		Reason: pipeline.ReasonPinned, Action: actionWrite,
		Note:       "key " + key + " has the content of curl-sha256 again (" + digest + "), from the history",
		Occurrence: key + "\x00" + digest + "\x00" + i.Result.GetWant().GetResourceVersion(),
	}
}
