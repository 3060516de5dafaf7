package apply

import (
	"context"
	"slices"

	"github.com/rs/zerolog"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kv8s/curl-me-that/proto/budget"
	"github.com/kv8s/curl-me-that/proto/process"
	"github.com/kv8s/curl-me-that/writer/internal/plan"
)

// budgets limit the writes in each namespace.
type budgets struct{ writes, writeBytes *budget.Budget }

// take spends the budget that a plan needs, or returns the budget that is exceeded.
func (b budgets) take(namespace string, p plan.Plan) (kind string, short *budget.Shortage) {
	if short = b.writes.Take(namespace, 1); short != nil {
		return budget.Writes, short
	}
	return budget.WriteBytes, b.writeBytes.Take(namespace, p.Bytes())
}

// overBudget defers results of a namespace that exceeded its budget. They are acknowledged, so they occupy no
// slot, and the watcher publishes missing keys again. The owner of each key gets one Event now, and another
// when the key is written.
func (t *task) overBudget(ctx context.Context, kind string, short *budget.Shortage) []Applied {
	if short.First {
		line := t.lines.Line(zerolog.WarnLevel, kindOverBudget).Str("outcome", string(plan.Deferred))
		process.LogDuration(line.Str("namespace", t.ref.Namespace).Str("budget", kind), "next", short.Wait).
			Msg("the namespace exceeded its budget, its results are delayed")
	}
	t.deps.Metrics.overBudget.WithLabelValues(kind).Inc()
	for _, item := range t.items {
		if item.OfObject() {
			continue
		}
		uid := types.UID(item.Result.GetWant().GetUid())
		t.unwritable.Put(keyIDOf(item), true)
		_, _ = t.emitEvents(ctx, item, uid, []plan.Event{plan.OverBudget(t.object, item)})
	}
	return slices.Repeat([]Applied{{Outcome: plan.Deferred}}, len(t.items))
}
