package plan

import (
	"cmp"
	"slices"
	"time"

	"go.opentelemetry.io/otel/trace"

	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/status"
)

// Item is a result that waits to be applied.
type Item struct {
	// Key that it is for.
	Key pipeline.Key
	// Result as it was published.
	Result *v1.Result
	// Fence of its trigger.
	Fence status.Fence
	// Trace that it belongs to, for the log; not valid: none.
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

// Confirmation returns what is kept of an item that found what the key holds.
func (i Item) Confirmation() Confirmation { return Confirmation{Fence: i.Fence, At: i.observed()} }

// OfObject reports whether an item is about the object as a whole. The watcher emits
// the Events about its annotations.
func (i Item) OfObject() bool { return i.Result.GetReconcile() != nil }

// url that was asked for.
func (i Item) url() string { return i.Result.GetWant().GetUrl() }

// observed is when the outcome was known, to the second as the status keeps it.
func (i Item) observed() time.Time {
	at := i.Result.GetObservedAt()
	if at == nil {
		return time.Time{}
	}
	return at.AsTime().UTC().Truncate(time.Second)
}

// Order returns the positions of items, oldest trigger first, so that what is
// newest has the last word.
func Order(items []Item) []int {
	positions := make([]int, len(items))
	for i := range positions {
		positions[i] = i
	}
	slices.SortStableFunc(positions, func(a, b int) int {
		return cmp.Or(items[a].Fence.Compare(items[b].Fence), cmp.Compare(a, b))
	})
	return positions
}
