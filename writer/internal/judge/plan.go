package judge

import (
	"time"
)

// Value is a body that goes into a key.
type Value struct {
	// Body as received.
	Body []byte
	// Binary tells that it is not valid UTF-8 and belongs to binaryData.
	Binary bool
}

// Event is something to say about an object.
type Event struct {
	// Reason from the closed set.
	Reason string
	// Warning tells whether something is wrong.
	Warning bool
	// Action that was taken, or not taken.
	Action string
	// Note is a sentence for people.
	Note string
	// Occurrence tells this change of state from others with the same reason.
	Occurrence string
}

// Decision is what becomes of one item.
type Decision struct {
	// Verdict on it, once the plan is carried out.
	Verdict Verdict
	// Events to say then.
	Events []Event
	// Again tells that the item must come back: it waits for an obstacle to
	// go away.
	Again bool
	// Confirmed tells that the item found what the key holds already, which is
	// not written down anywhere.
	Confirmed bool

	// sure: it stands, however well the object is known.
	sure bool
}

// Plan is what is to be done for items that wait for one object.
type Plan struct {
	// Decisions by position of the items.
	Decisions []Decision
	// Values to write by key; nil removes the key.
	Values map[string]*Value
	// Status to write when SetStatus; empty removes the annotation.
	Status    string
	SetStatus bool
	// NeedValues: nothing was decided, the whole object must be read.
	NeedValues bool
	// NeedLive: a result would be given up for what is not known for sure.
	NeedLive bool
}

// Empty tells whether there is nothing to write.
func (p Plan) Empty() bool { return len(p.Values) == 0 && !p.SetStatus }

// occurrence names a row of failures: it stays the same however often, and by
// whom, it is told.
func occurrence(key, url string, since time.Time) string {
	return key + "\x00" + url + "\x00" + since.Format(time.RFC3339)
}

// occupation names the state of a key that somebody else owns. The watcher, who
// usually sees it first, calls it the same.
func occupation(i Item) string { return i.Key.Key }
