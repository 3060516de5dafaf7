package plan

import (
	"strconv"
	"time"

	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/process/kube"
	"github.com/kv8s/curl-me-that/proto/status"
)

// Value is a body for a key.
type Value struct {
	Body []byte
	// Binary means that the body belongs to binaryData, because it is not valid UTF-8 or too large as JSON.
	Binary bool
}

// Event tells the owner of an object about a change of state. The emitter fills in the object.
type Event = kube.Event

// Decision is the decision on one item.
type Decision struct {
	Verdict Verdict
	Events  []Event
	// Confirmed means that the item found the value of its key unchanged. The status does not record
	// that.
	Confirmed bool
	// Version means that the body of the item belongs into the history, and Available that it was not written.
	Version, Available bool

	// Rejected means that the body is newly rejected, so that a dead letter keeps its start.
	Rejected bool
	// sure means that a live object would not change the decision.
	sure bool
}

// Plan is the plan for the pending items of one object.
type Plan struct {
	// Decisions are in the order of the items.
	Decisions []Decision
	// Values has the values to write by key. Nil removes a key.
	Values map[string]*Value
	// Status is written if SetStatus. An empty one removes the annotation.
	Status    string
	SetStatus bool
	// NeedValues means that the whole object must be read for a decision.
	NeedValues bool
	// NeedHistory lists the digests of bodies that must be looked up in the history.
	NeedHistory []string
	// NeedLive means that a result would be dropped because of an object that is not live.
	NeedLive bool
}

// Empty reports whether there is nothing to write.
func (p Plan) Empty() bool { return len(p.Values) == 0 && !p.SetStatus }

// TooLargeFor reports whether the annotations of a live object leave no room for the status.
func (p Plan) TooLargeFor(o *Object) bool {
	return p.SetStatus && o.Freshness == Live && len(p.Status) > o.Room
}

// Bytes is the size of the write.
func (p Plan) Bytes() int64 {
	n := len(p.Status)
	for _, v := range p.Values {
		if v != nil {
			n += len(v.Body)
		}
	}
	return int64(n)
}

// occurrence identifies a failing state. It is the same in each replica and each time that the state is
// reported. For a foreign key the watcher, which usually sees it first, uses the same one.
func occurrence(key string, entry status.Entry) string {
	if entry.Error == pipeline.Reason(keyExists) {
		return key
	}
	name := key + "\x00" + entry.FailingURL() + "\x00" + entry.Since.Format(time.RFC3339)
	if entry.GaveUp {
		name += "\x00gave up\x00" + strconv.Itoa(int(entry.Why().HTTPStatus))
		if number := entry.Why().Rule; number > 0 {
			name += "\x00rule " + strconv.Itoa(int(number))
		}
	}
	return name
}
