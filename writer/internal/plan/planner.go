package plan

import (
	"cmp"
	"maps"
	"slices"

	"github.com/kv8s/curl-me-that/proto/annotation"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/failure"
	"github.com/kv8s/curl-me-that/proto/status"
)

// Planner makes plans.
type Planner struct {
	// Prune removes a key that is no longer annotated.
	Prune bool
}

// Memory is what the writer knows besides the object.
type Memory struct {
	// Obstacle is the class of an earlier refusal of values by the API server (empty: none). The status may still be
	// writable.
	Obstacle Obstacle
	// History has what the history returned for each digest: nil if it has no such body.
	History map[string][]byte
	// Altered has the keys whose new value admission has changed.
	Altered map[string]AlteredKey
	// Confirmed has the newest fetch by key that found the value unchanged. It was not written, so
	// the status does not have it.
	Confirmed map[string]Confirmation
}

// AlteredKey has the entry that was written with a value, and the one that says what the key holds instead.
type AlteredKey struct{ Wrote, Holds status.Entry }

// Plan returns the plan for items, all of the same ConfigMap, or what must be read first. A nil object does not exist.
func (planner Planner) Plan(object *Object, m Memory, items []Item) (Plan, Need) {
	p := Plan{Decisions: make([]Decision, len(items))}
	if object == nil {
		for i := range items {
			p.Decisions[i].Outcome = Gone
		}
		return p, Need{}
	}
	b := &builder{
		planner: planner, object: object, memory: m, status: object.Status.Clone(), values: map[string]*Value{},
	}
	if object.Immutable {
		b.memory.Obstacle = Immutable
	}
	for key, altered := range m.Altered {
		if b.status.Keys[key] == altered.Wrote && !altered.Wrote.Copied(object.UID) { // nobody has written it since
			b.status.Keys[key], b.touched = altered.Holds, true
		}
	}
	for _, i := range Order(items) {
		p.Decisions[i] = b.decide(items[i])
		if b.need.Values { // which makes the object live
			return Plan{}, Need{Values: true}
		}
		if len(b.need.History) > 0 {
			return Plan{}, b.need
		}
		b.need.Live = b.need.Live || object.Freshness != Live && p.Decisions[i].needsLive()
	}
	if b.need.Live {
		return Plan{}, b.need
	}
	p.Values = b.values
	if b.touched {
		var short bool
		p.Status, short = b.fit()
		p.SetStatus = p.Status != "" || object.HasStatus
		if short && p.Status != "" && p.Status == object.Status.With(object.Others).String() {
			p.SetStatus = false // there was no room for the change
		}
	}
	return p, Need{}
}

// needsLive reports whether the decision drops a result.
func (d Decision) needsLive() bool {
	return !d.byFence && (d.Outcome == Late || d.Outcome == Gone || d.Outcome == KeyExists)
}

// builder holds the state that the object will have after the plan.
type builder struct {
	planner Planner
	object  *Object
	memory  Memory
	status  status.Status
	values  map[string]*Value
	touched bool
	need    Need
}

func (b *builder) decide(i Item) Decision {
	if string(b.object.UID) != i.Result.GetWant().GetUid() {
		return Decision{Outcome: Gone}
	}
	if i.OfObject() {
		return b.sync(i)
	}
	if _, others := b.object.Others.Keys[i.Key.Key]; others { // the watcher reports it
		return Decision{Outcome: KeyExists}
	}
	b.adoptCopied(i)
	entry := b.status.Keys[i.Key.Key]
	if b.memory.Confirmed[i.Key.Key].overtook(i) {
		return Decision{Outcome: Late, byFence: true}
	}
	switch i.Fence.Compare(entry.Fence) {
	case -1: // older than the status
		return Decision{Outcome: Late, byFence: true}
	case 0:
		if i.Result.GetFailure() != nil || !entry.Failing() || entry.Refused() {
			return Decision{Outcome: Unchanged, Events: b.eventsOf(i, entry)}
		}
		// The trigger was delivered twice, and its second fetch succeeded.
	}
	filled, over := b.fillPinOf(i)
	if over {
		return filled
	}
	d := b.result(i)
	d.Outcome, d.Events = cmp.Or(filled.Outcome, d.Outcome), append(filled.Events, d.Events...)
	return d
}

// result decides on an item that is newer than the status.
func (b *builder) result(i Item) Decision {
	switch r := i.Result.GetOutcome().(type) {
	case *v1.Result_Content:
		return b.content(i, r.Content)
	case *v1.Result_Unmodified:
		return b.unmodified(i, r.Unmodified)
	case *v1.Result_Failure:
		return b.failure(i, r.Failure)
	}
	return Decision{Outcome: Refused}
}

// adoptCopied handles a status entry that was copied from another object. We adopt the value if it has the
// digest in the entry, and drop the entry otherwise.
func (b *builder) adoptCopied(i Item) {
	key := i.Key.Key
	entry := b.status.Keys[key]
	if !entry.Copied(b.object.UID) {
		return
	}
	live, exists := b.digest(key)
	if exists && live == entry.SHA256 {
		b.status.Keys[key] = entry.OnlyBody()
	} else {
		b.status.Keys[key] = status.Entry{}
	}
}

// eventsOf returns the Events of an item that is already applied, because the process may have ended before
// it emitted them. The recorder writes each only once.
func (b *builder) eventsOf(i Item, entry status.Entry) []Event {
	switch {
	case entry.Failing() && !slices.Contains(Reasons(), entry.Error): // a user wrote this reason into the status
		return nil
	case entry.Failing():
		if f := i.Result.GetFailure(); f != nil && failure.Reason(f.GetClass()) == entry.Error {
			return []Event{failureEvent(i, entry, actionFetch, failureNote(i, f, entry))}
		}
		return []Event{failureEvent(i, entry, actionWrite, obstacleNote(i, entry, b.memory.Obstacle))}
	case entry.Available != "" && entry.Available == i.Result.GetContent().GetSha256():
		return []Event{updateAvailable(i, entry.HasBody(), entry.Available)}
	case !entry.Since.IsZero() && entry.Since.Equal(i.observed()):
		return []Event{Recovered(i)}
	}
	return nil
}

// owner returns the owner that key will have.
func (b *builder) owner(key string) annotation.Ownership {
	if b.values[key] != nil {
		return annotation.Ownership{State: annotation.Ours}
	}
	return b.object.owner(key)
}

// digest returns the digest of the current value of key.
func (b *builder) digest(key string) (digest string, exists bool) {
	if b.object.Values == nil {
		b.need.Values = true
	}
	digest, exists = b.object.Values[key]
	return digest, exists
}

// set replaces the entry of a key.
func (b *builder) set(key string, entry status.Entry) {
	entry.UIDMark, entry.Annotation = status.UIDMark(b.object.UID), annotation.NameInStatus(b.object.Request.Annotation)
	b.status.Keys[key] = entry
	b.touched = true
}

// fit returns the text of the status in at most the room of the object, if possible. It drops sizes and explanations
// first, then entries of foreign keys without a value. URL, digest, fence, number of attempts and the problem of the
// annotations stay, and so do entries of other installations. short reports whether anything was dropped.
func (b *builder) fit() (text string, short bool) {
	fits := func() bool {
		text = b.status.With(b.object.Others).String()
		return len(text) <= b.object.Room
	}
	if fits() {
		return text, false
	}
	for key, entry := range b.status.Keys {
		entry.Size, entry.Explanation = 0, nil
		b.status.Keys[key] = entry
	}
	if fits() {
		return text, true
	}
	maps.DeleteFunc(b.status.Keys,
		func(_ string, e status.Entry) bool {
			return e.Error == failure.Reason(failure.KeyExists) && !e.HasBody()
		})
	return b.status.With(b.object.Others).String(), true
}
