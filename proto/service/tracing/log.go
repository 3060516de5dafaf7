package tracing

import (
	"github.com/rs/zerolog"
	"go.opentelemetry.io/otel/trace"
)

// Stamp adds the id of a trace, under trace_id, to a log line, if there is one.
func Stamp(line *zerolog.Event, span trace.SpanContext) *zerolog.Event {
	if !span.HasTraceID() {
		return line
	}
	return line.Stringer("trace_id", span.TraceID())
}
