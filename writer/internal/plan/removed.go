package plan

import "github.com/kv8s/curl-me-that/proto/annotation"

// removed decides on a pair that was taken out of the annotation. A value stays
// that another field manager owns, alone or beside us, or that somebody has
// applied by a client: it is in their manifest, too. The pair may have come back,
// be it with a slip of the pen.
func (d *draft) removed(i Item) Decision {
	key := i.Key.Key
	if d.object.Request.Names(key) || !d.object.managed() {
		return Decision{Verdict: Stale}
	}
	entry, known := d.status.Keys[key]
	remove := d.planner.Prune && d.object.Obstacle == NoObstacle && d.wrote(key)
	if d.needValues {
		return Decision{}
	}
	decision := Decision{Verdict: Written}
	if note := d.sharedNote(key); remove && note != "" {
		remove = false
		decision.Events = []Event{kept(i, entry.Fence, note)}
	}
	if remove {
		d.values[key] = nil
	}
	if known {
		delete(d.status.Keys, key)
		d.touched = true
	}
	if !remove && !known {
		return Decision{Verdict: Unchanged}
	}
	return decision
}

// wrote reports whether the value of a key is one that we wrote.
func (d *draft) wrote(key string) bool {
	switch d.owner(key).State {
	case annotation.Ours:
		return true
	case annotation.Unknown:
		entry := d.status.Keys[key]
		live, exists := d.digest(key)
		return exists && entry.Written() && live == entry.SHA256
	default:
		return false
	}
}

// sharedNote names the other owner of a key of ours; empty: none.
func (d *draft) sharedNote(key string) string {
	if other := d.object.Owners.Other(key); other != "" {
		return "field manager " + other + " owns it, too"
	}
	if d.object.Applied[key] {
		return "the manifest that was last applied has it, too"
	}
	return ""
}
