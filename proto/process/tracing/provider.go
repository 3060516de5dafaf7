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
	"strings"
	"time"

	"github.com/go-logr/logr"
	"github.com/rs/zerolog"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
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
