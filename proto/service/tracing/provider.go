package tracing

import (
	"context"
	"time"

	"github.com/go-logr/logr"
	"github.com/rs/zerolog"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
)

// FlushTimeout bounds the sending of what is left when a service ends.
const FlushTimeout = 2 * time.Second

// Provider is where the spans of one service go. A nil Provider is off.
type Provider struct {
	sdk    *sdktrace.TracerProvider
	sender *sender
}

// FromEnv returns what the variables OTEL_* ask for: nil when they name no
// endpoint. What cannot be used is logged in one sentence and means: off.
// Spans are sent by OTLP over HTTP, in the background: a collector that cannot
// be reached delays nothing, and costs the spans that do not fit into the
// queue. The default service name is curl-me-that-<service>.
//
// It silences the loggers of the OpenTelemetry SDK, which are one for the
// process and print the values of variables.
func FromEnv(ctx context.Context, service, version string, log zerolog.Logger) *Provider {
	env := readEnvironment()
	for _, sentence := range env.wrong {
		log.Warn().Msg(sentence)
	}
	if env.endpoint == "" {
		return nil
	}
	otel.SetLogger(logr.Discard())
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(error) {}))
	exporter, err := otlptracehttp.New(ctx)
	if err != nil {
		log.Warn().Msg("OTEL_EXPORTER_OTLP_*: the certificates do not fit the address; there are no traces")
		return nil
	}
	s := newSender(exporter, env.endpoint, log)
	p := New(ctx, service, version, sdktrace.NewBatchSpanProcessor(s))
	p.sender = s
	log.Info().Str("collector", env.endpoint).Msg("sending traces")
	return p
}

// New returns a provider that hands ended spans to a processor. Sampler,
// resource and limits follow the variables OTEL_*.
func New(ctx context.Context, service, version string, processor sdktrace.SpanProcessor) *Provider {
	own := resource.NewSchemaless(
		semconv.ServiceName("curl-me-that-"+service),
		semconv.ServiceNamespace("curl-me-that"),
		semconv.ServiceVersion(version),
	)
	// What could not be detected is not worth more than the rest.
	detected, _ := resource.New(ctx, resource.WithTelemetrySDK(), resource.WithHost(), resource.WithFromEnv())
	all, err := resource.Merge(own, detected)
	if err != nil {
		all = own
	}
	return &Provider{sdk: sdktrace.NewTracerProvider(
		sdktrace.WithIDGenerator(ids{}),
		sdktrace.WithResource(all),
		sdktrace.WithSpanProcessor(processor),
	)}
}

// Tracer returns what makes the spans; nil when traces are off.
func (p *Provider) Tracer() *Tracer {
	if p == nil {
		return nil
	}
	return &Tracer{otel: p.sdk.Tracer("github.com/kv8s/curl-me-that")}
}

// Shutdown sends what is left, for FlushTimeout at most.
func (p *Provider) Shutdown(ctx context.Context) {
	if p == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, FlushTimeout)
	defer cancel()
	if p.sender != nil {
		defer context.AfterFunc(ctx, p.sender.abandon)()
	}
	_ = p.sdk.Shutdown(ctx) // what was not sent has been logged
}
