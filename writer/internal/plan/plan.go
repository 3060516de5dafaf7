// Package plan decides how results change a ConfigMap.
//
// It is pure. The known object and the pending results determine one patch, an outcome for each
// result, and the Events to emit. Package plan keeps these promises:
//
//   - only an annotated key is written, and only from its annotated URL;
//   - a key of another owner that we never wrote is not touched;
//   - a failure never touches a value;
//   - a result that is not newer than the fence of its key changes nothing.
//
// The API server refuses the patch if the object has changed, because the patch carries the uid and
// the resourceVersion of the planned object.
package plan

import (
	"github.com/kv8s/curl-me-that/proto/kube"
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
	Outcome Outcome
	Events  []Event
	// Confirmed means that the item found the value of its key unchanged. The status does not record
	// that.
	Confirmed bool
	// Keep means that the body of the item belongs into the history, and Offered that it was not written.
	Keep, Offered bool
	// NewPage means that the body is an HTML page for the first time, so that a dead letter keeps its start.
	NewPage bool
	// byFence means that the fence decides, so that the object need not be read.
	byFence bool
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
}

// Need is what must be read before there is a plan. The zero value means nothing.
type Need struct {
	// Live means that a result would be dropped because of an object that is not live.
	Live bool
	// Values means that the whole object must be read for a decision.
	Values bool
	// History lists the digests of bodies that must be looked up in the history.
	History []string
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

// Outcome tells what became of a result, as in logs and metric labels.
type Outcome string

// Outcomes on a result that the object now reflects.
const (
	// Written means that a value or the status was changed.
	Written Outcome = "written"
	// Unchanged means that the object was already as planned.
	Unchanged Outcome = "unchanged"
)

// Outcomes on a result that is dropped.
const (
	// Late means that the annotation has changed since, or that the object has a newer result.
	Late Outcome = "late"
	// Gone means that the object does not exist any more.
	Gone Outcome = "gone"
	// KeyExists means that another field manager or installation owns the key.
	KeyExists Outcome = "key_exists"
	// Refused means that the API server does not accept the write.
	Refused Outcome = "refused"
)

// Deferred means that the result was not written because of conflicts, a budget, or too many bodies of the history at
// once. The audit asks for its key again.
const Deferred Outcome = "deferred"

// Outcomes returns all outcomes.
func Outcomes() []Outcome {
	return []Outcome{Written, Unchanged, Late, Gone, KeyExists, Refused, Deferred}
}
