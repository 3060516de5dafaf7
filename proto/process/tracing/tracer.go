package tracing

import (
	"context"
	"strconv"

	"github.com/nats-io/nats.go"
	"github.com/rs/zerolog"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/kv8s/curl-me-that/proto/pipeline"
)

// Our own attributes. The others are semantic conventions.
const (
	// ConfigMap is the name of the ConfigMap.
	ConfigMap attribute.Key = "curlmethat.configmap"
	// DataKey is the key in the ConfigMap.
	DataKey attribute.Key = "curlmethat.key"
	// Cause is the cause of the fetch.
	Cause attribute.Key = "curlmethat.cause"
	// Attempt counts the attempts of a round, from 1.
	Attempt attribute.Key = "curlmethat.attempt"
	// Outcome is the result of handling a message.
	Outcome attribute.Key = "curlmethat.outcome"
	// Disposition of the message, and Verdict on the result in it.
	Disposition attribute.Key = "curlmethat.disposition"
	Verdict     attribute.Key = "curlmethat.verdict"
	// Delivery counts the deliveries of a message, from 1.
	Delivery attribute.Key = "curlmethat.delivery"
)

// Tracer creates the spans of one service. A nil Tracer creates none.
type Tracer struct {
	otel trace.Tracer
	sdk  *sdktrace.TracerProvider
}

// Publish starts the span of publishing to a subject, as a child of the span in ctx, if any. Messages
// published with the returned context carry it. The caller ends the span.
func (t *Tracer) Publish(ctx context.Context, kind pipeline.Kind, key pipeline.Key) (context.Context, trace.Span) {
	if t == nil {
		return ctx, trace.SpanFromContext(ctx)
	}
	//nolint:spancheck // the caller ends it
	return t.otel.Start(ctx, "publish "+kind.String(),
		trace.WithSpanKind(trace.SpanKindProducer),
		trace.WithAttributes(semconv.MessagingOperationTypeSend, semconv.MessagingOperationName("publish")),
		trace.WithAttributes(about(kind, key)...))
}

// Message has the fields of a received message that a span needs.
type Message struct {
	Kind   pipeline.Kind
	Key    pipeline.Key
	Header nats.Header
	// Size of the payload in bytes.
	Size int
	// Sequence in the stream, and the number of the delivery, from 1. Zero: not delivered.
	Sequence, Delivery uint64
}

// Of returns the message of a delivery. A malformed subject gives an empty kind and key.
func Of(d *pipeline.Delivery) Message {
	m := Message{Header: d.Headers(), Size: len(d.Data()), Sequence: d.Sequence(), Delivery: d.Number()}
	m.Kind, m.Key, _ = pipeline.ParseSubject(d.Subject())
	return m
}

// Consume starts the span of handling a message, as a child of the span in its header (W3C Trace
// Context) or in a new trace. The caller ends the span.
func (t *Tracer) Consume(ctx context.Context, operation, consumer string, m Message) (context.Context, trace.Span) {
	ctx = pipeline.ContextWithTrace(ctx, m.Header)
	if t == nil {
		return ctx, trace.SpanFromContext(ctx)
	}
	options := []trace.SpanStartOption{
		trace.WithSpanKind(trace.SpanKindConsumer),
		trace.WithAttributes(semconv.MessagingOperationTypeProcess, semconv.MessagingOperationName(operation),
			semconv.MessagingConsumerGroupName(consumer), semconv.MessagingMessageBodySize(m.Size)),
		trace.WithAttributes(about(m.Kind, m.Key)...),
	}
	if m.Delivery > 0 {
		options = append(options, trace.WithAttributes(
			semconv.MessagingMessageID(strconv.FormatUint(m.Sequence, 10)), Delivery.Int64(int64(m.Delivery))))
	}
	return t.otel.Start(ctx, operation+" "+m.Kind.String(), options...) //nolint:spancheck // the caller ends it
}

// Stamp adds the field trace_id to a log line, if there is a trace.
func Stamp(line *zerolog.Event, span trace.SpanContext) *zerolog.Event {
	if !span.HasTraceID() {
		return line
	}
	return line.Stringer("trace_id", span.TraceID())
}

func about(kind pipeline.Kind, key pipeline.Key) []attribute.KeyValue {
	return []attribute.KeyValue{
		semconv.MessagingSystemKey.String("nats"),
		semconv.MessagingDestinationName(kind.String()),
		semconv.MessagingDestinationTemplate(kind.Template()),
		semconv.K8SNamespaceName(key.Namespace),
		ConfigMap.String(key.Name),
		DataKey.String(key.Key),
	}
}

// Fail marks a span as failed for one of the known reasons.
func Fail(span trace.Span, reason string) {
	if span.IsRecording() {
		span.SetAttributes(semconv.ErrorTypeKey.String(reason))
		span.SetStatus(codes.Error, reason)
	}
}
