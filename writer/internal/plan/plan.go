package plan

import (
	"time"
)

// Value is a body that goes into a key.
type Value struct {
	// Body as received.
	Body []byte
	// Binary: it is not valid UTF-8 and belongs to binaryData.
	Binary bool
}

// Event is a change of state of an object, for its owner.
type Event struct {
	// Reason from the closed set.
	Reason string
	// Warning: something is wrong.
	Warning bool
	// Action that was taken, or not taken.
	Action string
	// Note is a sentence for people.
	Note string
	// Occurrence distinguishes this change of state from others with the same reason.
	Occurrence string
}

// Decision is what becomes of one item.
type Decision struct {
	// Verdict on it, once the plan is carried out.
	Verdict Verdict
	// Events to emit then.
	Events []Event
	// Confirmed: the item found what the key holds already, which is not
	// written down anywhere.
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

// Empty reports whether there is nothing to write.
func (p Plan) Empty() bool { return len(p.Values) == 0 && !p.SetStatus }

// Bytes is the size of what is written.
func (p Plan) Bytes() int64 {
	n := len(p.Status)
	for _, v := range p.Values {
		if v != nil {
			n += len(v.Body)
		}
	}
	return int64(n)
}

// occurrence names a row of failures: it stays the same however often, and by
// which replica, it is reported.
func occurrence(key, url string, since time.Time) string {
	return key + "\x00" + url + "\x00" + since.Format(time.RFC3339)
}

// keyExistsOccurrence names the state of a key that another field manager owns.
// The watcher, which usually sees it first, uses the same name.
func keyExistsOccurrence(i Item) string { return i.Key.Key }
