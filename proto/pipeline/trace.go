package pipeline

import (
	"context"

	"github.com/nats-io/nats.go"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// Headers of W3C Trace Context, sections 3.2 and 3.3. NATS headers are case-sensitive:
// propagation.HeaderCarrier would write Traceparent, which no reader finds.
const (
	headerTraceparent = "traceparent"
	headerTracestate  = "tracestate"
)

// maxTraceState is the maximum number of bytes of tracestate that are passed on. W3C Trace Context
// section 3.3.1.5 permits dropping the rest, and a message with a large body has little room for
// headers.
const maxTraceState = 256

// inject writes the trace context of ctx, if any, to a header.
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

// ContextWithTrace returns ctx with the trace context of a header, if any.
func ContextWithTrace(ctx context.Context, h nats.Header) context.Context {
	if h.Get(headerTraceparent) == "" {
		return ctx
	}
	fields := propagation.MapCarrier{
		headerTraceparent: h.Get(headerTraceparent),
		headerTracestate:  h.Get(headerTracestate),
	}
	return propagation.TraceContext{}.Extract(ctx, fields)
}

// Traceparent formats a trace context for a payload (W3C Trace Context section 3.2.2); empty if
// there is none.
func Traceparent(span trace.SpanContext) string {
	if !span.IsValid() {
		return ""
	}
	return "00-" + span.TraceID().String() + "-" + span.SpanID().String() + "-" +
		(span.TraceFlags() & trace.FlagsSampled).String()
}

// ParseTraceparent is the inverse of Traceparent. Malformed text gives an invalid trace context.
func ParseTraceparent(text string) trace.SpanContext {
	fields := propagation.MapCarrier{headerTraceparent: text}
	return trace.SpanContextFromContext(propagation.TraceContext{}.Extract(context.Background(), fields))
}
