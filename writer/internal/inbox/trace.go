package inbox

import (
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/process/tracing"
	"github.com/kv8s/curl-me-that/writer/internal/apply"
)

// setSpanOutcome records the outcome in a span.
func setSpanOutcome(span trace.Span, o apply.Outcome, d pipeline.Disposition) {
	if !span.IsRecording() {
		return
	}
	if o.Together > 1 {
		span.SetAttributes(semconv.MessagingBatchMessageCount(o.Together))
	}
	if o.Unavailable {
		span.SetAttributes(tracing.Disposition.String(d.String()))
		tracing.Fail(span, d.String())
		return
	}
	span.SetAttributes(tracing.Verdict.String(string(o.Verdict)))
}

// setSpanDeadLetter records a dead letter in a span.
func setSpanDeadLetter(span trace.Span, why error) {
	if span.IsRecording() {
		span.SetAttributes(tracing.Disposition.String(pipeline.DeadLetter(why).String()))
		tracing.Fail(span, pipeline.Reason(pipeline.FailureClass(why)))
	}
}
