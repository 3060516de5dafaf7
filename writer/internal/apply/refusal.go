package apply

import (
	"context"
	"errors"
	"slices"

	"github.com/rs/zerolog"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kv8s/curl-me-that/writer/internal/apiserver"
	"github.com/kv8s/curl-me-that/writer/internal/plan"
)

// maxFaults is the number of failed requests in a row for one object, while the API server is ready, after which
// its results are given up. The audit requests them again at growing intervals.
const maxFaults = 3

// errNoRoom stands for the refusal of a patch that is not even sent.
var errNoRoom = errors.New("the annotations leave no room for a status")

// handleRefusal handles a refused patch. The API server may still accept the status, so the next
// attempt only reports the obstacle there.
func (t *task) handleRefusal(ctx context.Context, p plan.Plan, by plan.Obstacle, err error) ([]Applied, bool) {
	if len(t.items) > 1 {
		return t.oneByOne(ctx, false), true
	}
	if t.memory.Obstacle == "" && !t.object.Immutable && len(p.Values) > 0 {
		t.memory.Obstacle = by
		return nil, false
	}
	t.deps.Breaker.Success(t.ref.Namespace)
	return t.giveUp(ctx, err, t.refusal(by)), true
}

// handleFailure handles a failed read, or a patch that failed for a reason other than its content.
func (t *task) handleFailure(ctx context.Context, err error) []Applied {
	switch apiserver.Classify(err) {
	case apiserver.Forbidden:
		t.deps.Breaker.Deny(t.ref.Namespace, err)
		noToken := apierrors.IsUnauthorized(err)
		return t.giveUp(ctx, err, func(i plan.Item) plan.Event { return plan.Denial(i, noToken) })
	case apiserver.Unavailable, apiserver.Failed:
		faults, down := t.faults.Get(t.ref)+1, t.serverFault(ctx, err) && !t.deps.Breaker.Allows()
		if !down {
			t.faults.Put(t.ref, faults)
		}
		if down || faults < maxFaults {
			return slices.Repeat([]Applied{{After: apiserver.RetryAfter(err)}}, len(t.items))
		}
		return t.giveUp(ctx, err, t.refusal(plan.Failed))
	default:
		t.resultLine(t.items[0], zerolog.WarnLevel, plan.Refused).Err(err).Msg("object cannot be read")
		return slices.Repeat([]Applied{{Outcome: plan.Refused}}, len(t.items))
	}
}

// serverFault reports whether the API server is the reason for a failed request, and tells the breaker. If it is ready,
// the object is the reason.
func (t *task) serverFault(ctx context.Context, err error) bool {
	if apiserver.Classify(err) == apiserver.Failed && t.deps.Client.Probe(context.WithoutCancel(ctx)) == nil {
		return false
	}
	t.deps.Breaker.Failure(err, apiserver.RetryAfter(err))
	return true
}

// refusal returns the Event for each item that the API server refuses.
func (t *task) refusal(by plan.Obstacle) func(plan.Item) plan.Event {
	return func(item plan.Item) plan.Event { return plan.Refusal(t.object, item, by) }
}

// giveUp acknowledges results that cannot even be recorded in the status, and emits one Event. The
// audit requests their keys again, at growing intervals.
func (t *task) giveUp(ctx context.Context, err error, eventFor func(plan.Item) plan.Event) []Applied {
	for _, item := range t.items {
		uid := types.UID(item.Result.GetWant().GetUid())
		if !item.OfObject() {
			t.unwritable.Put(keyIDOf(item), true)
		}
		// emitEvents also returns true if Events are forbidden. Then the log is the only report.
		if written, _ := t.emitEvents(ctx, item, uid, []plan.Event{eventFor(item)}); written {
			t.resultLine(item, zerolog.WarnLevel, plan.Refused).Err(err).Msg("refused: by the API server")
		}
	}
	return slices.Repeat([]Applied{{Outcome: plan.Refused}}, len(t.items))
}

// endsRefusal reports whether an item wrote a value that this process reported as unwritable. The
// status does not show that.
func (t *task) endsRefusal(item plan.Item, d plan.Decision) bool {
	good := item.Result.GetContent() != nil || item.Result.GetUnmodified() != nil
	if !good || d.Outcome != plan.Written || !t.unwritable.Get(keyIDOf(item)) {
		return false
	}
	t.unwritable.Drop(keyIDOf(item))
	return len(d.Events) == 0
}
