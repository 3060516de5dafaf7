package engine

import (
	"cmp"
	"net/http"
	"net/url"
	"strconv"

	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/kv8s/curl-me-that/fetcher/internal/get"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/process/tracing"
)

// maxPath is the maximum length of a URL's path in a span, in bytes.
const maxPath = 256

// setSpanOutcome completes the span of an attempt, with host and path of the URL.
func (a *attempt) setSpanOutcome(r reaction) {
	if !a.span.IsRecording() {
		return
	}
	a.span.SetAttributes(
		tracing.Cause.String(pipeline.CauseName(a.cause)),
		tracing.Attempt.Int64(int64(a.due.GetAttempts())+1),
		tracing.Outcome.String(string(r.outcome)),
	)
	a.span.SetAttributes(target(a.want.GetUrl())...)
	if r.failure != nil && r.failure.StatusCode != 0 {
		a.span.SetAttributes(semconv.HTTPResponseStatusCode(r.failure.StatusCode))
	}
	switch {
	case r.failure != nil:
		tracing.Fail(a.span, pipeline.Reason(r.failure.Class))
	case r.outcome == postponed:
		tracing.Fail(a.span, string(postponed))
	}
	a.span.End()
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
