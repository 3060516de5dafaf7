package engine

import (
	"cmp"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/rs/zerolog"
	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/kv8s/curl-me-that/fetcher/internal/get"
	"github.com/kv8s/curl-me-that/proto/budget"
	"github.com/kv8s/curl-me-that/proto/duration"
	"github.com/kv8s/curl-me-that/proto/failure"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/process"
	"github.com/kv8s/curl-me-that/proto/process/tracing"
	"github.com/kv8s/curl-me-that/proto/weburl"
)

// logLines has the level and the message of the log line about each outcome, see logLine.
var logLines = map[outcome]struct {
	level zerolog.Level
	text  string
}{
	outcomeContent:    {zerolog.InfoLevel, "fetched"},
	outcomeRecovered:  {zerolog.InfoLevel, "recovered"},
	outcomeUnmodified: {zerolog.DebugLevel, "unmodified"},
	outcomeInSync:     {zerolog.DebugLevel, "in sync"},
	outcomeRetry:      {zerolog.DebugLevel, "fetch failed, retrying in "},
	outcomeGaveUp:     {zerolog.WarnLevel, "gave up"},
	outcomeParked:     {zerolog.DebugLevel, "parked"},
	outcomeQueued:     {zerolog.DebugLevel, "waiting for a slot"},
	outcomeSuperseded: {zerolog.DebugLevel, "no longer wanted"},
	outcomeTombstone:  {zerolog.DebugLevel, "no longer wanted"},
	outcomeMalformed:  {zerolog.WarnLevel, "message cannot be handled"},
	outcomePostponed:  {zerolog.DebugLevel, "outcome not accepted by NATS, retrying"},
}

// reportOutcome counts and logs an outcome, without the URL, which may contain secrets, and without text of
// the server. If there are too many lines of one outcome, they are only counted.
func (e *Engine) reportOutcome(a *attempt, d decision) {
	t := &a.trigger
	e.deps.Metrics.messages.WithLabelValues(string(d.outcome)).Inc()
	switch d.outcome {
	case outcomeRetry:
		e.deps.Metrics.retries.Inc()
	case outcomeParked:
		e.deps.Metrics.parked.WithLabelValues(pipeline.WaitsForName(d.parking.For)).Inc()
	default:
	}
	level, text := logLine(t, d)
	line := e.lines.Line(level, string(d.outcome))
	if line == nil {
		return
	}
	line = process.LogKey(tracing.Stamp(line, a.span.SpanContext()), t.key)
	line = line.Str("host", weburl.HostOf(t.want.GetUrl())).Uint32("attempt", t.due.GetAttempts()+1)
	line = process.LogCause(line, t.cause).Str("outcome", string(d.outcome))
	if d.wait > 0 {
		line = process.LogDuration(line, "next", d.wait)
	}
	if f := d.failure; f != nil {
		line = line.Str("reason", failure.Reason(f.Class)).Str("error", f.text)
		if f.StatusCode != 0 {
			line = line.Int("status", f.StatusCode)
		}
	}
	if d.dropped {
		line = line.Bool("dead_letter_dropped", true)
	}
	line.Msg(text)
}

// logLine returns the level and the message of the line about an outcome. The level depends on
// whether the state of the key changes.
func logLine(t *trigger, d decision) (zerolog.Level, string) {
	line := logLines[d.outcome]
	switch {
	case d.outcome == outcomeRetry:
		line.text += duration.Format(max(d.wait.Round(time.Second), time.Second))
		if !t.failing() {
			line.level = zerolog.InfoLevel
		}
	case d.outcome == outcomeGaveUp && t.due.GetGaveUp() && t.reported() == d.failure.Class:
		line.level = zerolog.DebugLevel
	}
	return line.level, line.text
}

// logShortage logs once that a namespace has exceeded a budget.
func (e *Engine) logShortage(t *trigger, short *budget.Shortage, kind, text string) {
	if !short.First {
		return
	}
	line := e.lines.Line(zerolog.WarnLevel, kind)
	if line == nil {
		return
	}
	process.LogDuration(line.Str("namespace", t.key.Namespace).Str("budget", kind), "next", short.Wait).Msg(text)
}

// maxPath is the maximum length of a URL's path in a span, in bytes.
const maxPath = 256

// setSpanOutcome completes the span of an attempt, with host and path of the URL.
func (a *attempt) setSpanOutcome(d decision) {
	if !a.span.IsRecording() {
		return
	}
	a.span.SetAttributes(
		tracing.Cause.String(pipeline.CauseName(a.cause)),
		tracing.Attempt.Int64(int64(a.due.GetAttempts())+1),
		tracing.Outcome.String(string(d.outcome)),
	)
	a.span.SetAttributes(urlAttributes(a.want.GetUrl())...)
	if d.failure != nil && d.failure.StatusCode != 0 {
		a.span.SetAttributes(semconv.HTTPResponseStatusCode(d.failure.StatusCode))
	}
	switch {
	case d.failure != nil:
		tracing.Fail(a.span, failure.Reason(d.failure.Class))
	case d.outcome == outcomePostponed:
		tracing.Fail(a.span, string(outcomePostponed))
	}
	a.span.End()
}

// urlAttributes returns the span attributes of a URL.
func urlAttributes(raw string) []attribute.KeyValue {
	u, err := url.Parse(raw)
	if err != nil || u.Host == "" {
		return nil
	}
	path := cmp.Or(u.RawPath, u.EscapedPath())
	attributes := []attribute.KeyValue{
		semconv.HTTPRequestMethodGet,
		semconv.URLScheme(u.Scheme),
		semconv.ServerAddress(weburl.HostOf(raw)),
		semconv.URLPath(strings.ToValidUTF8(path[:min(len(path), maxPath)], "")),
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
