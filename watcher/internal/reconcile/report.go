package reconcile

import (
	"context"
	"errors"

	"github.com/rs/zerolog"

	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/service/logfield"
	"github.com/kv8s/curl-me-that/proto/service/tracing"
)

// cause is why something is published: that of a want, or what is published beside
// wants.
type cause string

const (
	causeTombstone cause = "tombstone"
	causeRemoved   cause = "removed"
	causeProblems  cause = "problems"
)

func causeOf(w *v1.Want) cause { return cause(pipeline.CauseName(w.GetCause())) }

// traced calls publish in a span of its own, and logs what was published; when there
// is much, that of one cause is counted instead.
func (r *Reconciler) traced(
	ctx context.Context, kind pipeline.Kind, key pipeline.Key, c cause, publish func(context.Context) (seq uint64, err error),
) (uint64, error) {
	ctx, span := r.deps.Tracer.Publish(ctx, kind, key)
	defer span.End()
	if span.IsRecording() {
		span.SetAttributes(tracing.Cause.String(string(c)))
	}
	seq, err := publish(ctx)
	switch {
	case errors.Is(err, pipeline.ErrSuperseded):
		tracing.Fail(span, "superseded")
	case err != nil:
		tracing.Fail(span, "unpublished")
	default:
		if line := r.lines.Line(zerolog.DebugLevel, string(c)); line != nil {
			logfield.Key(tracing.Stamp(line, span.SpanContext()), key).
				Str("cause", string(c)).Uint64("sequence", seq).Msg("published")
		}
	}
	return seq, err
}
