package plan

import (
	"maps"
	"slices"

	"github.com/kv8s/curl-me-that/proto/annotation"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/sentence"
	"github.com/kv8s/curl-me-that/proto/status"
)

// reconcile brings the object in line with its annotations: it reports their problems and foreign keys
// in the status, and removes keys that are no longer annotated. Texts and keys come from the object itself, so
// a forged message can neither put words into the status nor remove an annotated key.
func (b *builder) reconcile(i Item) Decision {
	o := b.object
	if o.Ignored || o.Request.Suspended {
		return Decision{Verdict: Late}
	}
	d := Decision{Verdict: Unchanged}
	request := o.Request.Checked()
	changed := b.explainAnnotations(i, request)
	changed = b.explainForeign(i, request.Pairs) || changed
	changed = b.fillPins(i, &d) || changed
	if i.Result.GetReconcile().GetRemove() && o.Invalid == nil {
		changed = b.removeUnannotated(&d) || changed
	}
	if changed {
		b.touched, d.Verdict = true, Written
	}
	return d
}

// removeUnannotated removes the status entries of keys that are no longer annotated, and their values if
// nobody else owns them. It reports whether there were any.
func (b *builder) removeUnannotated(d *Decision) (changed bool) {
	for _, key := range slices.Sorted(maps.Keys(b.status.Keys)) {
		if b.object.Request.Names(key) {
			continue
		}
		if b.planner.Prune && b.wrote(key) {
			if note := b.keptNote(key); note != "" {
				d.Events = append(d.Events, kept(key, b.status.Keys[key].Fence, note))
			} else {
				b.values[key] = nil
			}
		}
		delete(b.status.Keys, key)
		changed = true
	}
	return changed
}

// wrote reports whether we wrote the value of a key.
func (b *builder) wrote(key string) bool {
	switch b.owner(key).State {
	case annotation.Ours:
		return true
	case annotation.Unknown:
		entry := b.status.Keys[key]
		live, exists := b.digest(key)
		return exists && entry.HasBody() && live == entry.SHA256
	default:
		return false
	}
}

// keptNote says why a key of ours is not removed, or is empty if it is. A key that another field manager
// owns too, or that the last kubectl apply contained, is part of somebody's manifest.
func (b *builder) keptNote(key string) string {
	switch other := b.object.Owners.Other(key); {
	case other != "":
		return "field manager " + other + " also owns it"
	case b.object.Applied[key]:
		return "the manifest that was last applied has it, too"
	case b.object.Obstacle != "":
		return "the API server refuses to remove it"
	}
	return ""
}

// explainAnnotations puts the problem or limit of the annotations into the status, and reports whether it has
// changed.
func (b *builder) explainAnnotations(i Item, request annotation.Request) bool {
	want := i.Result.GetWant()
	request, err := annotation.Bounded(i.Result.GetReconcile().GetBound(), want.GetNamespace(), request, b.object.Invalid)
	text, was := request.Problem(err), b.status.Problem
	switch {
	case text == "" && was == nil, was != nil && was.Message == text, b.object.Others.Problem != nil:
		return false
	case text == "":
		b.status.Problem = nil
		return true
	}
	since := i.observed()
	if was != nil {
		since = was.Since
	}
	reason := pipeline.Reason(v1.FailureClass_FAILURE_CLASS_INVALID_ANNOTATION)
	b.status.Problem = &status.Problem{
		Error: reason, Message: text, Since: since, Annotation: annotation.Asker(b.object.Request.Annotation),
	}
	return true
}

// explainForeign puts KeyExists into the status of annotated keys of other owners, and reports whether the status
// has changed. Nothing is fetched for such a key, so no result reports it. Once the key is free, the next
// result replaces the entry.
func (b *builder) explainForeign(i Item, pairs []annotation.Pair) (changed bool) {
	for _, pair := range pairs {
		entry := b.status.Keys[pair.Key]
		_, other := b.object.Others.Keys[pair.Key]
		if other || entry.HasBody() || b.owner(pair.Key).State != annotation.Foreign {
			continue
		}
		if entry.Copied(b.object.UID) {
			entry = status.Entry{}
		}
		next := failing(entry, pair.URL, pipeline.Reason(keyExists), i.observed())
		next.GaveUp, next.Explanation = true, &status.Explanation{Message: sentence.KeyExists(pair.Key)}
		if !sameFailure(entry, next) {
			b.set(pair.Key, next)
			changed = true
		}
	}
	return changed
}

// offered handles a body other than the one to which its key is pinned. With an interval the pin is the approval of
// its owner, so the body is only reported.
func (b *builder) offered(i Item, c *v1.Content) Decision {
	key := i.Key.Key
	if b.object.Request.Interval(key) <= 0 {
		return Decision{Verdict: Late}
	}
	entry := b.status.Keys[key]
	if !entry.HasBody() && b.isForeign(key, b.owner(key)) {
		return b.obstacle(i, NotOurs, keyExists)
	}
	if entry.Available == c.GetSha256() && !entry.Failing() {
		return Decision{Verdict: Unchanged, Confirmed: true}
	}
	next := entry.WithoutFailure()
	next.Available, next.Fence = c.GetSha256(), i.Fence
	if !entry.HasBody() {
		next.URL = i.url()
	}
	d := b.healthy(i, entry, next)
	d.Version, d.Available = true, true
	if entry.Available != next.Available {
		d.Events = append(d.Events, updateAvailable(i, entry.HasBody(), next.Available))
	}
	return d
}

// fillPins gives pinned keys the body of their digest, if the history has it, and reports whether there were any.
func (b *builder) fillPins(i Item, d *Decision) (changed bool) {
	for _, pair := range b.object.Request.Pairs {
		entry := b.status.Keys[pair.Key]
		held := entry.SHA256 == b.object.Request.SHA256[pair.Key] && b.owner(pair.Key).State == annotation.Ours
		changed = (!held || entry.Failing()) && b.fillPin(i, pair.Key, d) || changed
	}
	return changed
}

// fillPin does so for one key. Nobody else is asked: the digest is the proof. The entry has no URL, because the body
// may be of a former one: without the pin, the key is fetched.
func (b *builder) fillPin(i Item, key string, d *Decision) bool {
	pin, entry := b.object.Request.SHA256[key], b.status.Keys[key]
	_, others := b.object.Others.Keys[key]
	if pin == "" || others || !b.object.managed() || b.object.Obstacle != "" || entry.Copied(b.object.UID) ||
		!entry.HasBody() && b.isForeign(key, b.owner(key)) {
		return false
	}
	body, known := b.object.History[pin]
	switch {
	case !known && len(b.needHistory)+len(b.object.History) < pipeline.MaxPinsFilled:
		b.needHistory = append(b.needHistory, pin)
		return false
	case body == nil: // the watcher publishes a want
		return false
	}
	value := valueOf(body)
	next := status.Entry{
		SHA256: pin, Size: int64(len(body)), ChangedAt: i.observed(), Binary: value.Binary, Fence: entry.Fence,
		Rules: b.object.Request.Rules[key].Digest(),
	}
	if i.Fence.Newer(next.Fence) {
		next.Fence = i.Fence
	}
	if entry.Available != pin {
		next.Available = entry.Available
	}
	b.values[key] = value
	b.set(key, next)
	d.Events = append(d.Events, pinned(i, key, pin))
	return true
}

// rollBack fills the pin of a key whose result does not have that body. The message that asked for it was lost or
// refused, for example while the writer had no permission. over means that the result needs nothing else.
func (b *builder) rollBack(i Item) (d Decision, over bool) {
	key, pin := i.Key.Key, b.object.Request.SHA256[i.Key.Key]
	_, known := b.object.History[pin]
	switch {
	case pin == "", pin == b.status.Keys[key].SHA256, pin == i.Result.GetContent().GetSha256(), !b.object.asks(i, ""):
		return d, false
	case !known && len(b.object.History) >= pipeline.MaxPinsFilled:
		return Decision{Verdict: Deferred}, true
	case b.object.Obstacle != "" && b.object.History[pin] != nil:
		return b.refused(i), true
	case b.fillPin(i, key, &d):
		d.Verdict = Written
	}
	mismatch := i.Result.GetFailure().GetClass() == v1.FailureClass_FAILURE_CLASS_DIGEST_MISMATCH
	return d, d.Verdict == Written && mismatch
}

// updateAvailable returns the Event for content that waits for the approval of the key's owner.
func updateAvailable(i Item, written bool, digest string) Event {
	return Event{
		Reason: pipeline.ReasonUpdateAvailable, Action: actionFetch,
		Note: sentence.UpdateAvailable(i.url(), digest) + "; " +
			sentence.Value(i.Key.Key, written) + " until curl-sha256 names that digest",
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
