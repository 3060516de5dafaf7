package apply

import (
	"context"

	"github.com/rs/zerolog"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kv8s/curl-me-that/proto/process/budget"
	"github.com/kv8s/curl-me-that/writer/internal/apiserver"
	"github.com/kv8s/curl-me-that/writer/internal/plan"
)

// emitEvents reports whether it wrote an Event that this process had not written before. After an error, the
// item should be retried. A refused Event counts as written, because the log reports it and the value
// matters more.
func (t *task) emitEvents(
	ctx context.Context, item plan.Item, uid types.UID, events []plan.Event,
) (written bool, err error) {
	for _, e := range events {
		e.Namespace, e.Name, e.UID = t.ref.Namespace, t.ref.Name, uid
		if e.Again.IsZero() && t.deps.Recorder.Recorded(e) || !t.affordsEvent() {
			continue
		}
		switch err := t.record(ctx, e); apiserver.Classify(err) {
		case apiserver.OK:
			t.eventsRefused.Store(false)
			t.deps.Metrics.events.WithLabelValues(e.Reason).Inc()
			written = true
		case apiserver.Unavailable, apiserver.Failed:
			if !t.serverFault(ctx, err) {
				t.line(item, zerolog.WarnLevel, kindEventFailed).Err(err).
					Msg("Event was not written, perhaps because an admission webhook is slow or broken")
				return true, nil
			}
			t.line(item, zerolog.DebugLevel, kindEventFailed).Err(err).Msg("Event was not written, retrying")
			return false, err
		default:
			if !t.eventsRefused.Swap(true) {
				t.line(item, zerolog.ErrorLevel, kindEventRefused).Err(err).
					Msg("Events are refused: grant create, get and patch of events to the writer's service account")
			}
			return true, nil
		}
	}
	return written, nil
}

func (t *task) record(ctx context.Context, e plan.Event) error {
	ctx, cancel := context.WithTimeout(ctx, apiserver.CallTimeout)
	defer cancel()
	return t.deps.Recorder.Record(ctx, e)
}

// affordsEvent takes one Event from the budget of the namespace, and reports whether there was one left. Events
// over the budget are only counted.
func (t *task) affordsEvent() bool {
	short := t.budgets.events.Take(t.ref.Namespace, 1)
	if short == nil {
		return true
	}
	t.deps.Metrics.eventsDropped.Inc()
	if short.First {
		t.deps.Log.Warn().Str("namespace", t.ref.Namespace).Str("budget", budget.Events).
			Msg("namespace exceeded its Event budget, Events are dropped")
	}
	return false
}
