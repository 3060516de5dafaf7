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
	"slices"
	"strconv"
	"time"

	"go.opentelemetry.io/otel/trace"

	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/failure"
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
	Outcome Outcome
	Events  []Event
	// Confirmed means that the item found the value of its key unchanged. The status does not record
	// that.
	Confirmed bool
	// Version means that the body of the item belongs into the history, and Available that it was not written.
	Version, Available bool

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

// occurrence identifies a failing state. It is the same in each replica and each time that the state is
// reported. For a foreign key the watcher, which usually sees it first, uses the same one.
func occurrence(key string, entry status.Entry) string {
	if entry.Error == failure.Reason(failure.KeyExists) {
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

// Item is a pending result.
type Item struct {
	Key    pipeline.Key
	Result *v1.Result
	// Fence is the epoch and sequence of the want or due message that caused the result.
	Fence status.Fence
	// Trace is logged with the item, unless it is invalid.
	Trace trace.SpanContext
}

// NewItem returns the item for a result.
func NewItem(r *v1.Result) Item {
	return Item{
		Key:    pipeline.KeyOf(r.GetWant()),
		Result: r,
		Fence:  status.Fence{Epoch: r.GetWant().GetEpoch(), Seq: r.GetSequence()},
	}
}

// Confirmation returns the confirmation of an item that found the value of its key unchanged.
func (i Item) Confirmation() Confirmation { return Confirmation{Fence: i.Fence, At: i.observed()} }

// OfObject reports whether an item concerns the whole object. The watcher emits the Events about
// its annotations.
func (i Item) OfObject() bool { return i.Result.GetSync() != nil }

func (i Item) url() string { return i.Result.GetWant().GetUrl() }

// ObservedAt returns the time of the result.
func (i Item) ObservedAt() time.Time { return i.Result.GetObservedAt().AsTime() }

// observed returns the time of the outcome, truncated to the second like in the status.
func (i Item) observed() time.Time {
	at := i.Result.GetObservedAt()
	if at == nil {
		return time.Time{}
	}
	return at.AsTime().UTC().Truncate(time.Second)
}

// Order returns the positions of items, oldest trigger first, so that the newest one wins.
func Order(items []Item) []int {
	positions := make([]int, len(items))
	for i := range positions {
		positions[i] = i
	}
	slices.SortStableFunc(positions, func(a, b int) int {
		return items[a].Fence.Compare(items[b].Fence)
	})
	return positions
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
