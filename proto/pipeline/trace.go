package pipeline

import (
	"context"

	"github.com/nats-io/nats.go"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// Headers of W3C Trace Context, sections 3.2 and 3.3. Names of NATS headers are
// case-sensitive: propagation.HeaderCarrier would write Traceparent, which no
// reader finds.
const (
	headerTraceparent = "traceparent"
	headerTracestate  = "tracestate"
)

// maxTraceState is how many bytes of tracestate are passed on. More is
// dropped, which W3C Trace Context section 3.3.1.5 permits: a message with a
// large body has little room for headers.
const maxTraceState = 256

// inject writes the trace context of ctx, if it has one, into a header.
func inject(ctx context.Context, h nats.Header) {
	span := trace.SpanContextFromContext(ctx)
	if !span.IsValid() {
		return
	}
	if len(span.TraceState().String()) > maxTraceState {
		ctx = trace.ContextWithSpanContext(ctx, span.WithTraceState(trace.TraceState{}))
	}
	fields := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, fields)
	for name, value := range fields {
		h.Set(name, value)
	}
}

// ContextWithTrace returns ctx with the trace context that a header carries, or
// as it is.
func ContextWithTrace(ctx context.Context, h nats.Header) context.Context {
	if h.Get(headerTraceparent) == "" {
		return ctx
	}
	fields := propagation.MapCarrier{headerTraceparent: h.Get(headerTraceparent), headerTracestate: h.Get(headerTracestate)}
	return propagation.TraceContext{}.Extract(ctx, fields)
}

// Traceparent returns a trace context as text for a payload (W3C Trace Context
// section 3.2.2); empty if there is none.
func Traceparent(span trace.SpanContext) string {
	if !span.IsValid() {
		return ""
	}
	return "00-" + span.TraceID().String() + "-" + span.SpanID().String() + "-" + (span.TraceFlags() & trace.FlagsSampled).String()
}

// ParseTraceparent is the inverse of Traceparent. What cannot be read gives a
// trace context that is not valid.
func ParseTraceparent(text string) trace.SpanContext {
	if text == "" {
		return trace.SpanContext{}
	}
	fields := propagation.MapCarrier{headerTraceparent: text}
	return trace.SpanContextFromContext(propagation.TraceContext{}.Extract(context.Background(), fields))
}
