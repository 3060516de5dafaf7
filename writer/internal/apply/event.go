package apply

import (
	"context"

	"github.com/rs/zerolog"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kv8s/curl-me-that/proto/budget"
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
