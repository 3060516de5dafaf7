package reconcile

import (
	"context"
	"errors"

	"github.com/rs/zerolog"

	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/process/logfield"
	"github.com/kv8s/curl-me-that/proto/process/tracing"
)

// Causes of what is published beside wants.
const (
	tombstone = "tombstone"
	inLine    = "reconcile"
)

// heldBackLine is the kind of log lines about a namespace whose removals are held back.
const heldBackLine = "held_back"

// Why something was not published, in spans.
const (
	superseded  = "superseded"
	unpublished = "unpublished"
)

// traced calls publish in a span of its own, and logs what was published; when there
// is much, that of one cause is counted instead.
func (r *Reconciler) traced(
	ctx context.Context, kind pipeline.Kind, key pipeline.Key, cause string,
	publish func(context.Context) (seq uint64, err error),
) (uint64, error) {
	ctx, span := r.deps.Tracer.Publish(ctx, kind, key)
	defer span.End()
	if span.IsRecording() {
		span.SetAttributes(tracing.Cause.String(cause))
	}
	seq, err := publish(ctx)
	switch {
	case errors.Is(err, pipeline.ErrSuperseded):
		tracing.Fail(span, superseded)
	case err != nil:
		tracing.Fail(span, unpublished)
	default:
		if line := r.lines.Line(zerolog.DebugLevel, cause); line != nil {
			logfield.Key(tracing.Stamp(line, span.SpanContext()), key).
				Str("cause", cause).Uint64("sequence", seq).Msg("published")
		}
	}
	return seq, err
}
