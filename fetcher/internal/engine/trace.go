package engine

import (
	"cmp"
	"context"
	"crypto/tls"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strconv"

	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/kv8s/curl-me-that/fetcher/internal/get"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/process/tracing"
)

// maxPath is the maximum length of a URL's path in a span, in bytes.
const maxPath = 256

// begin starts the span of a trigger.
//
// A trace is one round: a want, refresh, recheck or replay with its retries. The timer of a retry
// carries the trace context of its message, and the timer of a refresh carries none. Both link to
// the attempt that set them.
func (e *Engine) begin(ctx context.Context, t *trigger, m tracing.Message) context.Context {
	ctx, t.span = e.deps.Tracer.Consume(ctx, "fetch", pipeline.FetcherConsumer, m)
	t.origin = trace.SpanContextFromContext(pipeline.ContextWithTrace(context.Background(), m.Headers()))
	if !t.origin.IsValid() {
		t.origin = t.span.SpanContext()
	}
	relation := tracing.EarlierAttempt
	if t.cause == v1.Cause_CAUSE_REPLAY {
		relation = tracing.ReplayedFailure
	}
	tracing.LinkTo(t.span, pipeline.ParseTraceparent(t.past.GetEarlier()), relation)
	return ctx
}

// traceparent identifies the attempt for later ones.
func (t *trigger) traceparent() string {
	if !t.span.IsRecording() {
		return ""
	}
	return pipeline.Traceparent(t.span.SpanContext())
}

// sameTrace is the context for a timer of the same round.
func (t *trigger) sameTrace(ctx context.Context) context.Context {
	if !t.origin.IsValid() {
		return ctx
	}
	return trace.ContextWithSpanContext(ctx, t.origin)
}

// newTrace is the context for a timer of the next round.
func newTrace(ctx context.Context) context.Context {
	if !trace.SpanContextFromContext(ctx).IsValid() {
		return ctx
	}
	return trace.ContextWithSpanContext(ctx, trace.SpanContext{})
}

// setSpanOutcome completes the span of a trigger, with host and path of the URL.
func (t *trigger) setSpanOutcome(ended ending) {
	if !t.span.IsRecording() {
		return
	}
	t.span.SetAttributes(
		tracing.Cause.String(pipeline.CauseName(t.cause)),
		tracing.Attempt.Int64(int64(t.past.GetAttempts())+1),
		tracing.Outcome.String(string(ended.outcome)),
	)
	t.span.SetAttributes(target(t.want.GetUrl())...)
	if ended.failure.StatusCode != 0 {
		t.span.SetAttributes(semconv.HTTPResponseStatusCode(ended.failure.StatusCode))
	}
	switch {
	case ended.failure.Class != 0:
		tracing.Fail(t.span, pipeline.Reason(ended.failure.Class))
	case ended.outcome == postponed:
		tracing.Fail(t.span, string(postponed))
	}
	t.span.End()
}

// target returns the span attributes of a URL.
func target(raw string) []attribute.KeyValue {
	u, err := url.Parse(raw)
	if err != nil || u.Host == "" {
		return nil
	}
	path := cmp.Or(u.RawPath, u.EscapedPath())
	attributes := []attribute.KeyValue{
		semconv.HTTPRequestMethodGet,
		semconv.URLScheme(u.Scheme),
		semconv.ServerAddress(pipeline.HostOf(raw)),
		semconv.URLPath(path[:min(len(path), maxPath)]),
	}
	if port, err := strconv.Atoi(u.Port()); err == nil {
		attributes = append(attributes, semconv.ServerPort(port))
	}
	return attributes
}

// setSpanResponse records a good response.
func setSpanResponse(span trace.Span, r get.Response) {
	if !span.IsRecording() {
		return
	}
	code := http.StatusOK
	if r.NotModified {
		code = http.StatusNotModified
	}
	span.SetAttributes(semconv.HTTPResponseStatusCode(code), semconv.HTTPResponseBodySize(len(r.Body)))
}

// failedPhase reports whether a phase failed. No event has the error, because it may contain
// addresses.
const failedPhase attribute.Key = "curlmethat.failed"

// withPhases adds an event to a span at the start and the end of each phase of a GET.
func withPhases(ctx context.Context, span trace.Span) context.Context {
	if !span.IsRecording() {
		return ctx
	}
	ended := func(phase string, err error) {
		span.AddEvent(phase, trace.WithAttributes(failedPhase.Bool(err != nil)))
	}
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		DNSStart:             func(httptrace.DNSStartInfo) { span.AddEvent("dns.start") },
		DNSDone:              func(info httptrace.DNSDoneInfo) { ended("dns.done", info.Err) },
		ConnectStart:         func(string, string) { span.AddEvent("connect.start") },
		ConnectDone:          func(_, _ string, err error) { ended("connect.done", err) },
		TLSHandshakeStart:    func() { span.AddEvent("tls.start") },
		TLSHandshakeDone:     func(_ tls.ConnectionState, err error) { ended("tls.done", err) },
		WroteRequest:         func(info httptrace.WroteRequestInfo) { ended("request.written", info.Err) },
		GotFirstResponseByte: func() { span.AddEvent("first_byte") },
	})
}
