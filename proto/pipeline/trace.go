package pipeline

import (
	"context"
	"maps"
	"slices"

	"github.com/nats-io/nats.go"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// headerTraceparent is the header of W3C Trace Context, section 3.2.
const headerTraceparent = "traceparent"

// maxTraceState is how many bytes of tracestate are passed on. More is
// dropped, which W3C Trace Context section 3.3.1.5 permits: a message with a
// large body has little room for headers.
const maxTraceState = 256

// carrier is the header of a message. Names of NATS headers are case-sensitive:
// the carrier for HTTP headers would write Traceparent, which no reader finds.
type carrier nats.Header

// Get returns the first value of a header.
func (c carrier) Get(name string) string {
	if values := c[name]; len(values) > 0 {
		return values[0]
	}
	return ""
}

// Set replaces a header.
func (c carrier) Set(name, value string) { c[name] = []string{value} }

// Keys returns the names of all headers.
func (c carrier) Keys() []string { return slices.Collect(maps.Keys(c)) }

// inject writes the trace context of ctx, if it has one, into a header.
func inject(ctx context.Context, h nats.Header) {
	span := trace.SpanContextFromContext(ctx)
	if !span.IsValid() {
		return
	}
	if len(span.TraceState().String()) > maxTraceState {
		ctx = trace.ContextWithSpanContext(ctx, span.WithTraceState(trace.TraceState{}))
	}
	propagation.TraceContext{}.Inject(ctx, carrier(h))
}

// ContextWithTrace returns ctx with the trace context that a header carries, or
// as it is.
func ContextWithTrace(ctx context.Context, h nats.Header) context.Context {
	if len(h[headerTraceparent]) == 0 {
		return ctx
	}
	return propagation.TraceContext{}.Extract(ctx, carrier(h))
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
	h := carrier{headerTraceparent: {text}}
	none := context.Background()
	return trace.SpanContextFromContext(propagation.TraceContext{}.Extract(none, h))
}
