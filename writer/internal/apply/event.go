package apply

import (
	"context"
	"slices"

	"github.com/rs/zerolog"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kv8s/curl-me-that/proto/failure"
	"github.com/kv8s/curl-me-that/proto/process"
	"github.com/kv8s/curl-me-that/proto/process/budget"
	"github.com/kv8s/curl-me-that/proto/process/tracing"
	"github.com/kv8s/curl-me-that/proto/weburl"
	"github.com/kv8s/curl-me-that/writer/internal/apiserver"
	"github.com/kv8s/curl-me-that/writer/internal/plan"
)

// emitEvents reports whether it wrote an Event that this process had not written before. After an error, the
// item should be retried. A denied Event counts as written, because the log reports it and the value
// matters more.
func (t *task) emitEvents(
	ctx context.Context, item plan.Item, uid types.UID, events []plan.Event,
) (written bool, err error) {
	for _, e := range events {
		e.Namespace, e.Name, e.UID = t.ref.Namespace, t.ref.Name, uid
		switch wrote, _, err := t.record(ctx, e); apiserver.Classify(err) {
		case apiserver.OK:
			if !wrote { // it was written before, or is over budget and dropped
				continue
			}
			t.eventsDenied.Store(false)
			t.deps.Metrics.events.WithLabelValues(e.Reason).Inc()
			written = true
		case apiserver.Unavailable, apiserver.Failed:
			// The admission plugin EventRateLimit has limits for Events. A limit for all requests refuses patches, too.
			level := zerolog.WarnLevel
			switch limited := apierrors.IsTooManyRequests(err); {
			case limited:
			case t.serverFault(ctx, err):
				level = zerolog.DebugLevel // the breaker logs it
			default:
				t.line(item, zerolog.WarnLevel, kindEventFailed).Err(err).
					Msg("Event was not written, perhaps because an admission webhook is slow or broken")
				return true, nil
			}
			t.line(item, level, kindEventFailed).Err(err).Msg("Event was not written, retrying")
			return false, err
		default:
			if !t.eventsDenied.Swap(true) {
				t.line(item, zerolog.ErrorLevel, kindEventDenied).Err(err).
					Msg("Events are denied: grant create, get and patch of events to the writer's service account")
			}
			return true, nil
		}
	}
	return written, nil
}

func (t *task) record(ctx context.Context, e plan.Event) (written bool, short *budget.Shortage, err error) {
	ctx, cancel := context.WithTimeout(ctx, apiserver.CallTimeout)
	defer cancel()
	return t.deps.Recorder.Record(ctx, e)
}

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

// Kinds of log lines without an outcome.
const (
	kindEventFailed = "event_failed"
	kindEventDenied = "event_denied"
	kindOverBudget  = "over_budget"
)

// line begins a log line about an item. It contains only the host of the URL, and nothing of the body. It
// returns nil if there are too many lines of its kind.
func (t *task) line(i plan.Item, level zerolog.Level, kind string) *zerolog.Event {
	line := t.lines.Line(level, kind)
	if line == nil {
		return nil
	}
	line = process.LogKey(tracing.Stamp(line, i.Trace), i.Key)
	if i.OfObject() {
		return line
	}
	return line.Str("host", weburl.HostOf(i.Result.GetWant().GetUrl()))
}

// resultLine begins a log line with the outcome of an item.
func (t *task) resultLine(i plan.Item, level zerolog.Level, v plan.Outcome) *zerolog.Event {
	return t.line(i, level, string(v)).Str("outcome", string(v))
}

// logResult logs changes of state at level info and everything else at debug.
func (t *task) logResult(i plan.Item, d plan.Decision) {
	level := zerolog.DebugLevel
	if d.Outcome == plan.Written && (i.OfObject() || i.Result.GetContent() != nil) ||
		d.Outcome != plan.Unchanged && len(d.Events) > 0 {
		level = zerolog.InfoLevel
	}
	line := t.resultLine(i, level, d.Outcome)
	if f := i.Result.GetFailure(); f != nil {
		line = line.Str("reason", failure.Reason(f.GetClass())).Uint32("attempt", f.GetAttempts())
	}
	if c := i.Result.GetContent(); c != nil {
		line = line.Int("bytes", len(c.GetBody()))
	}
	line.Msg(describe(i, d.Outcome))
}

// describe says what happened to an item.
func describe(i plan.Item, v plan.Outcome) string {
	if v == plan.Written && i.Result.GetContent() == nil {
		return "status written"
	}
	return string(v)
}
