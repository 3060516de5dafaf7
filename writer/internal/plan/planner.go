package plan

import (
	"github.com/kv8s/curl-me-that/proto/annotation"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/status"
)

// Planner makes plans by the settings of the writer.
type Planner struct {
	// Prune: a key that is no longer asked for is removed.
	Prune bool
}

// Plan returns what is to be done for items, all of the same ConfigMap. A nil object
// does not exist.
func (planner Planner) Plan(object *Object, items []Item) Plan {
	p := Plan{Decisions: make([]Decision, len(items))}
	if object == nil {
		for i := range items {
			p.Decisions[i].Verdict = Gone
		}
		return p
	}
	d := &draft{planner: planner, object: object, status: object.Status.Clone(), values: map[string]*Value{}}
	for _, i := range Order(items) {
		p.Decisions[i] = d.decide(items[i])
		if object.Source != Live && p.Decisions[i].final() {
			p.NeedLive = true
		}
	}
	p.NeedValues = d.needValues
	p.Values = d.values
	if d.touched {
		text, short := fit(d.status, object.Room)
		p.Status, p.SetStatus = text, text != "" || object.HasStatus
		if short && text != "" && text == object.Status.String() { // what is new found no room
			p.SetStatus = false
		}
	}
	return p
}

// final reports whether the decision gives a result up.
func (d Decision) final() bool {
	return !d.sure && (d.Verdict == Stale || d.Verdict == Gone || d.Verdict == NotOurs)
}

// draft is the object as it will be when the plan is carried out.
type draft struct {
	planner    Planner
	object     *Object
	status     status.Status
	values     map[string]*Value
	touched    bool
	needValues bool
}

func (d *draft) decide(i Item) Decision {
	if string(d.object.UID) != i.Result.GetWant().GetUid() {
		return Decision{Verdict: Gone}
	}
	if i.OfObject() {
		return d.problems(i)
	}
	if d.adoptCopied(i); d.needValues {
		return Decision{}
	}
	entry := d.status.Keys[i.Key.Key]
	if d.object.Confirmed[i.Key.Key].overtook(i) {
		return Decision{Verdict: Stale, sure: true}
	}
	switch i.Fence.Compare(entry.Fence) {
	case -1: // fences only grow
		return Decision{Verdict: Stale, sure: true}
	case 0:
		if i.Result.GetFailure() != nil || !fetchFailing(entry) {
			return Decision{Verdict: Unchanged, Events: d.eventsOf(i, entry)}
		}
		// The trigger came to its fetcher twice, and the second fetch went well.
	}
	switch outcome := i.Result.GetOutcome().(type) {
	case *v1.Result_Content:
		return d.content(i, outcome.Content)
	case *v1.Result_Unmodified:
		return d.unmodified(i, outcome.Unmodified)
	case *v1.Result_Failure:
		return d.failure(i, outcome.Failure)
	case *v1.Result_Removed:
		return d.removed(i)
	}
	return Decision{Verdict: Refused}
}

// adoptCopied decides whose the value of a key is whose entry was written on
// another object: the digest shows whether it is the one that we wrote there,
// which is then ours here. Any other value belongs to its owner.
func (d *draft) adoptCopied(i Item) {
	key := i.Key.Key
	entry := d.status.Keys[key]
	if !entry.Copied(d.object.UID) {
		return
	}
	live, exists := d.digest(key)
	if exists && live == entry.SHA256 {
		d.status.Keys[key] = entry.Body()
	} else {
		d.status.Keys[key] = status.Entry{}
	}
}

// eventsOf returns the Events that the item led to when it was applied. They are
// emitted again, as the process may have ended before it could; the recorder
// writes each only once.
func (d *draft) eventsOf(i Item, entry status.Entry) []Event {
	switch {
	case entry.Failing():
		if f := i.Result.GetFailure(); f != nil && pipeline.Reason(f.GetClass()) == entry.Error {
			return []Event{failed(i, entry, actionFetch, failureNote(i, f, entry))}
		}
		event := failed(i, entry, actionWrite, obstacleNote(i, entry, d.object.Obstacle))
		if pipeline.ClassOf(entry.Error) == keyExists {
			event.Occurrence = keyExistsOccurrence(i)
		}
		return []Event{event}
	case !entry.Since.IsZero() && entry.Since.Equal(i.observed()):
		return []Event{recovered(i)}
	}
	return nil
}

// owner returns the owner that key will have.
func (d *draft) owner(key string) annotation.Ownership {
	value, planned := d.values[key]
	switch {
	case !planned:
		return d.object.owner(key)
	case value == nil:
		return annotation.Ownership{State: annotation.None, Fingerprint: missing}
	}
	return annotation.Ownership{State: annotation.Ours}
}

// digest returns the digest of the value that key has in the object.
func (d *draft) digest(key string) (digest string, exists bool) {
	if d.object.Values == nil {
		d.needValues = true
	}
	digest, exists = d.object.Values[key]
	return digest, exists
}

// set replaces the entry of a key.
func (d *draft) set(key string, entry status.Entry) {
	entry.Object = status.Mark(d.object.UID)
	d.status.Keys[key] = entry
	d.touched = true
}
