// Package tracing creates the spans of the services with OpenTelemetry: one for each message that
// is published, fetched or applied.
//
// Trace context is sent in the headers of NATS messages (package pipeline). The variables OTEL_*
// configure the SDK. Without an endpoint nothing is created or allocated.
//
// No span contains a query string, userinfo, an IP address or text of a server.
package tracing

import (
	"cmp"
	"context"
	"errors"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"github.com/nats-io/nats.go"
	"github.com/rs/zerolog"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/kv8s/curl-me-that/proto/pipeline"
)

// FlushTimeout is the maximum time to send the remaining spans when a service ends.
const FlushTimeout = 2 * time.Second

// errorInterval is the minimum time between two log lines about the collector.
const errorInterval = 5 * time.Minute

// FromEnv returns a tracer that sends spans by OTLP over HTTP in the background, as configured by
// the variables OTEL_*. It returns nil if they name no endpoint or turn traces off.
//
// The error handler of the SDK is global: with several services in one process, the last one logs.
func FromEnv(ctx context.Context, service, version string, log zerolog.Logger) *Tracer {
	collector := endpoint(log)
	if collector == "" {
		return nil
	}
	otel.SetLogger(logr.Discard()) // it prints the values of variables, which may be secret
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		log.Warn().Msg("configure traces by OTEL_*: " + err.Error())
	}))
	exporter, err := otlptracehttp.New(ctx)
	if err != nil {
		log.Warn().Msg("OTEL_EXPORTER_OTLP_*: the certificates do not match the address, traces are off")
		return nil
	}
	t := New(ctx, service, version, sdktrace.NewBatchSpanProcessor(exporter))
	sampled := log.Sample(&zerolog.BurstSampler{Burst: 1, Period: errorInterval})
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		sampled.Warn().Str("collector", collector).Str("error",
			kindOf(err)).Msg("cannot send traces to the collector, continuing without them")
	}))
	log.Info().Str("collector", collector).Msg("sending traces")
	return t
}

// endpoint returns the address of the collector without userinfo (empty if traces are off).
func endpoint(log zerolog.Logger) string {
	if strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true") ||
		strings.EqualFold(os.Getenv("OTEL_TRACES_EXPORTER"), "none") {
		return ""
	}
	raw := cmp.Or(os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"), os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT"))
	if raw == "" {
		return ""
	}
	u, err := url.Parse(raw)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		log.Warn().Msg("OTEL_EXPORTER_OTLP_ENDPOINT is not an address such as http://collector:4318, traces are off")
		return ""
	}
	return u.Scheme + "://" + u.Host
}

// kindOf describes an error without its text, which may contain text of the collector.
func kindOf(err error) string {
	if operation, ok := errors.AsType[*net.OpError](err); ok {
		return operation.Error()
	}
	if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() || errors.Is(err, context.DeadlineExceeded) {
		return "timeout"
	}
	return "the collector rejected them"
}

// New returns a tracer that passes ended spans to a processor. The variables OTEL_* configure
// sampler, resource and limits.
func New(ctx context.Context, service, version string, processor sdktrace.SpanProcessor) *Tracer {
	own := resource.NewSchemaless(
		semconv.ServiceName("curl-me-that-"+service),
		semconv.ServiceNamespace("curl-me-that"),
		semconv.ServiceVersion(version),
	)
	// An incomplete resource is good enough.
	detected, _ := resource.New(ctx, resource.WithTelemetrySDK(), resource.WithHost(), resource.WithFromEnv())
	all, err := resource.Merge(own, detected)
	if err != nil {
		all = own
	}
	sdk := sdktrace.NewTracerProvider(sdktrace.WithResource(all), sdktrace.WithSpanProcessor(processor))
	return &Tracer{otel: sdk.Tracer("github.com/kv8s/curl-me-that"), sdk: sdk}
}

// Shutdown sends the remaining spans within FlushTimeout.
func (t *Tracer) Shutdown(ctx context.Context) {
	if t == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, FlushTimeout)
	defer cancel()
	if err := t.sdk.Shutdown(ctx); err != nil {
		otel.Handle(err)
	}
}

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
	// Outcome of a fetch, or of the result that a message has.
	Outcome attribute.Key = "curlmethat.outcome"
	// Disposition of the message.
	Disposition attribute.Key = "curlmethat.disposition"
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

// MessageOf returns the message of a delivery. A malformed subject gives an empty kind and key.
func MessageOf(d *pipeline.Delivery) Message {
	m := Message{Header: d.Headers(), Size: len(d.Data()), Sequence: d.Sequence(), Delivery: d.NumDelivered()}
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
