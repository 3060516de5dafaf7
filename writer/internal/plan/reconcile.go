package plan

import (
	"maps"
	"slices"

	"github.com/kv8s/curl-me-that/proto/annotation"
	"github.com/kv8s/curl-me-that/proto/condition"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/status"
)

// reconcile brings the object in line with its annotations: the status with what is
// wrong with them and with keys that somebody else has written, and the keys with the
// pairs. All of it is read in the object, so that no message can put a sentence before
// its owner or remove what is asked for.
func (b *builder) reconcile(i Item) Decision {
	o := b.object
	if o.Ignored || o.Request.Suspended {
		return Decision{Verdict: Stale}
	}
	d := Decision{Verdict: Unchanged}
	changed := b.explainAnnotations(i)
	changed = b.explainOccupied(i) || changed
	if i.Result.GetReconcile().GetRemove() && o.Invalid == nil {
		changed = b.removeUnasked(&d) || changed
	}
	if changed {
		b.touched, d.Verdict = true, Written
	}
	return d
}

// removeUnasked takes out the entries that no pair names, and reports whether there
// were any. Their values go, too, unless they belong to somebody else.
func (b *builder) removeUnasked(d *Decision) (changed bool) {
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

// wrote reports whether the value of a key is one that we wrote.
func (b *builder) wrote(key string) bool {
	switch b.owner(key).State {
	case annotation.Ours:
		return true
	case annotation.Unknown:
		entry := b.status.Keys[key]
		live, exists := b.digest(key)
		return exists && entry.Written() && live == entry.SHA256
	default:
		return false
	}
}

// keptNote states why the value of a key of ours is not removed; empty: it is. A key
// that another field manager owns, or that somebody has applied by a client, is in
// their manifest, too.
func (b *builder) keptNote(key string) string {
	switch other := b.object.Owners.Other(key); {
	case other != "":
		return "field manager " + other + " also owns it"
	case b.object.Applied[key]:
		return "the manifest that was last applied has it, too"
	case b.object.Obstacle != NoObstacle:
		return "the API server refuses to remove it"
	}
	return ""
}

// explainAnnotations reports whether what is wrong with the annotations, or bounds them, has changed.
func (b *builder) explainAnnotations(i Item) bool {
	by := i.Result.GetReconcile().GetBound()
	bound := annotation.Bound{
		Keys: int(by.GetKeys()), Stretch: int(by.GetStretch()),
		Refreshes: int(by.GetRefreshes()), Refreshed: int(by.GetRefreshed()),
	}
	request, err := bound.Apply(i.Result.GetWant().GetNamespace(), b.object.Request, b.object.Invalid)
	text, held := request.Problem(err), b.status.Problem
	switch {
	case text == "" && held == nil, held != nil && held.Message == text:
		return false
	case text == "":
		b.status.Problem = nil
		return true
	}
	since := i.observed()
	if held != nil {
		since = held.Since
	}
	reason := pipeline.Reason(v1.FailureClass_FAILURE_CLASS_INVALID_ANNOTATION)
	b.status.Problem = &status.Problem{Error: reason, Message: text, Since: since}
	return true
}

// explainOccupied reports whether a key was found that we never wrote, and whose
// entry does not have that yet. No result comes for such a key, as nothing is
// fetched for it; when it is free, the next result replaces the entry.
func (b *builder) explainOccupied(i Item) (changed bool) {
	for _, pair := range b.object.Request.Pairs {
		entry := b.status.Keys[pair.Key]
		if entry.Written() || b.owner(pair.Key).State != annotation.Foreign {
			continue
		}
		if entry.Copied(b.object.UID) {
			entry = status.Entry{}
		}
		next := failing(entry, pair.URL, pipeline.Reason(keyExists), i.observed())
		next.GaveUp, next.Explanation = true, &status.Explanation{Message: condition.KeyExists(pair.Key)}
		if !sameFailure(entry, next) {
			b.set(pair.Key, next)
			changed = true
		}
	}
	return changed
}
