package plan

import "github.com/kv8s/curl-me-that/proto/annotation"

// removed decides on a pair that was taken out of the annotation. A value stays
// that another field manager owns, alone or beside us, or that somebody has
// applied by a client: it is in their manifest, too. The pair may have come back,
// be it with a slip of the pen.
func (b *builder) removed(i Item) Decision {
	key := i.Key.Key
	if b.object.Request.Names(key) || !b.object.managed() {
		return Decision{Verdict: Stale}
	}
	entry, known := b.status.Keys[key]
	if !known {
		return Decision{Verdict: Unchanged}
	}
	remove := b.planner.Prune && b.object.Obstacle == NoObstacle && b.wrote(key)
	decision := Decision{Verdict: Written}
	if note := b.sharedNote(key); remove && note != "" {
		remove = false
		decision.Events = []Event{kept(i, entry.Fence, note)}
	}
	if remove {
		b.values[key] = nil
	}
	delete(b.status.Keys, key)
	b.touched = true
	return decision
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

// sharedNote names the other owner of a key of ours; empty: none.
func (b *builder) sharedNote(key string) string {
	if other := b.object.Owners.Other(key); other != "" {
		return "field manager " + other + " also owns it"
	}
	if b.object.Applied[key] {
		return "the manifest that was last applied has it, too"
	}
	return ""
}
