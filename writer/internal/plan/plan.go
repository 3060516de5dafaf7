package plan

import (
	"strconv"
	"time"

	"github.com/kv8s/curl-me-that/proto/status"
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
	// Again is when it was observed: the same one of an earlier look is counted up.
	// Zero: it is emitted once.
	Again time.Time
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

// TooLargeFor reports whether there is no room for the status among the
// annotations of an object that was just read.
func (p Plan) TooLargeFor(o *Object) bool {
	return p.SetStatus && o.Freshness == Live && len(p.Status) > o.Room
}

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

// occurrence names a state in a row of failures: it stays the same however often,
// and by which replica, it is reported.
func occurrence(key string, entry status.Entry) string {
	name := key + "\x00" + entry.FailingURL() + "\x00" + entry.Since.Format(time.RFC3339)
	if entry.GaveUp {
		name += "\x00gave up\x00" + strconv.Itoa(int(entry.Why().HTTPStatus))
	}
	return name
}

// keyExistsOccurrence names the state of a key that another field manager owns.
// The watcher, which usually sees it first, uses the same name.
func keyExistsOccurrence(i Item) string { return i.Key.Key }
