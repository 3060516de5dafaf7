package plan

import (
	"maps"
	"slices"

	"github.com/kv8s/curl-me-that/proto/annotation"
	"github.com/kv8s/curl-me-that/proto/failure"
	"github.com/kv8s/curl-me-that/proto/sentence"
	"github.com/kv8s/curl-me-that/proto/status"
)

// sync brings the object in line with its annotations: it reports their problems and foreign keys
// in the status, and removes keys that are no longer annotated. Texts and keys come from the object itself, so
// a forged message can neither put words into the status nor remove an annotated key.
func (b *builder) sync(i Item) Decision {
	o := b.object
	if o.Ignored || o.Request.Suspended {
		return Decision{Outcome: Late}
	}
	d := Decision{Outcome: Unchanged}
	request := o.Request.Checked()
	changed := b.explainAnnotations(i, request)
	changed = b.explainForeign(i, request.Pairs) || changed
	changed = b.fillPins(i, &d) || changed
	if i.Result.GetSync().GetRemove() && o.Invalid == nil {
		changed = b.removeUnannotated(&d) || changed
	}
	if changed {
		b.touched, d.Outcome = true, Written
	}
	return d
}

// removeUnannotated removes the status entries of keys that are no longer annotated, and their values if
// nobody else owns them. It reports whether there were any.
func (b *builder) removeUnannotated(d *Decision) (changed bool) {
	for _, key := range slices.Sorted(maps.Keys(b.status.Keys)) {
		if b.object.Request.Mentions(key) {
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
	case b.object.LastApplied[key]:
		return "the manifest that was last applied has it, too"
	case b.memory.Obstacle != "":
		return "the API server refuses to remove it"
	}
	return ""
}

// explainAnnotations puts the problem or limit of the annotations into the status, and reports whether it has
// changed.
func (b *builder) explainAnnotations(i Item, request annotation.Request) bool {
	want := i.Result.GetWant()
	request, err := annotation.Bounded(i.Result.GetSync().GetBound(), want.GetNamespace(), request, b.object.Invalid)
	text, was := request.ProblemText(err), b.status.Problem
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
	reason := failure.Reason(failure.InvalidAnnotation)
	b.status.Problem = &status.ObjectProblem{
		Error: reason, Message: text, Since: since, Annotation: annotation.NameInStatus(b.object.Request.Annotation),
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
		next := failing(entry, pair.URL, failure.Reason(failure.KeyExists), i.observed())
		next.GaveUp, next.Explanation = true, &status.Explanation{Message: sentence.KeyExists(pair.Key)}
		if !sameFailure(entry, next) {
			b.set(pair.Key, next)
			changed = true
		}
	}
	return changed
}
