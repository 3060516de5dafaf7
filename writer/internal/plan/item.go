package plan

import (
	"slices"
	"time"

	"go.opentelemetry.io/otel/trace"

	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/status"
)

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
