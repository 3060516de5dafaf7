package reconcile

import (
	"errors"

	"github.com/rs/zerolog"
	"go.opentelemetry.io/otel/trace"

	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/service/logfield"
	"github.com/kv8s/curl-me-that/proto/service/tracing"
)

// What is published beside wants, in place of their cause.
const (
	tombstone = "tombstone"
	removed   = "removed"
	problems  = "problems"
)

// report logs a publish; when there are many, those of one cause are counted instead.
func (r *Reconciler) report(span trace.Span, key pipeline.Key, cause string, seq uint64) {
	line := r.lines.Line(zerolog.DebugLevel, cause)
	if line == nil {
		return
	}
	logfield.Key(tracing.Stamp(line, span.SpanContext()), key).
		Str("cause", cause).Uint64("sequence", seq).Msg("published what is wanted")
}

// setSpanCause notes in a span why something is published.
func setSpanCause(span trace.Span, cause string) {
	if span.IsRecording() {
		span.SetAttributes(tracing.Cause.String(cause))
	}
}

// setSpanError notes in a span that nothing was published.
func setSpanError(span trace.Span, err error) {
	if errors.Is(err, pipeline.ErrSuperseded) {
		tracing.Fail(span, "superseded")
		return
	}
	tracing.Fail(span, "unpublished")
}
