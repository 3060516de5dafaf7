package plan

import "github.com/kv8s/curl-me-that/proto/annotation"

// removed decides on a pair that was taken out of the annotation. A value that
// another field manager owns stays.
func (d *draft) removed(i Item) Decision {
	key := i.Key.Key
	if _, asked := d.object.Request.URL(key); asked || !d.object.managed() {
		return Decision{Verdict: Stale}
	}
	entry, known := d.status.Keys[key]
	remove := d.planner.Prune && d.object.Obstacle == NoObstacle
	if remove {
		switch d.owner(key).State {
		case annotation.Ours:
		case annotation.Unknown:
			live, exists := d.digest(key)
			remove = exists && entry.Written() && live == entry.SHA256
		default:
			remove = false
		}
	}
	if d.needValues {
		return Decision{}
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
	return Decision{Verdict: Written}
}
