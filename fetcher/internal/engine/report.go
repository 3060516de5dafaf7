package engine

import (
	"cmp"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/rs/zerolog"
	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/kv8s/curl-me-that/fetcher/internal/get"
	"github.com/kv8s/curl-me-that/proto/duration"
	"github.com/kv8s/curl-me-that/proto/failure"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/process"
	"github.com/kv8s/curl-me-that/proto/process/budget"
	"github.com/kv8s/curl-me-that/proto/process/tracing"
	"github.com/kv8s/curl-me-that/proto/weburl"
)

// outcome is the outcome of a message, from a closed set.
type outcome string

const (
	content    outcome = "content"    // a new body was published
	recovered  outcome = "recovered"  // the key was failing and recovered with its old body
	unmodified outcome = "unmodified" // the key already has this body
	inSync     outcome = "in_sync"    // nothing to fetch before the next refresh
	retry      outcome = "retry"      // the attempt failed, and a retry is scheduled
	gaveUp     outcome = "gave_up"    // the last attempt failed, with a dead letter within the budget
	parked     outcome = "parked"     // an obstacle prevents an attempt
	queued     outcome = "queued"     // the key is parked only until its turn in the queue
	superseded outcome = "superseded" // the want was replaced or removed
	tombstone  outcome = "tombstone"  // the message is a tombstone
	malformed  outcome = "malformed"  // the message cannot be handled and becomes a dead letter
	postponed  outcome = "postponed"  // the broker did not accept the outcome during a drain, or a replica lags
)

// logLines has the level and the message of the log line about each outcome, see logLine.
var logLines = map[outcome]struct {
	level zerolog.Level
	text  string
}{
	content:    {zerolog.InfoLevel, "fetched"},
	recovered:  {zerolog.InfoLevel, "recovered"},
	unmodified: {zerolog.DebugLevel, "unmodified"},
	inSync:     {zerolog.DebugLevel, "in sync"},
	retry:      {zerolog.DebugLevel, "fetch failed, retrying in "},
	gaveUp:     {zerolog.WarnLevel, "gave up"},
	parked:     {zerolog.DebugLevel, "parked"},
	queued:     {zerolog.DebugLevel, "waiting for a slot"},
	superseded: {zerolog.DebugLevel, "no longer wanted"},
	tombstone:  {zerolog.DebugLevel, "no longer wanted"},
	malformed:  {zerolog.WarnLevel, "message cannot be handled"},
	postponed:  {zerolog.DebugLevel, "outcome not accepted by NATS, retrying"},
}

// report counts and logs an outcome, without the URL, which may contain secrets, and without text of
// the server. If there are too many lines of one outcome, they are only counted.
func (e *Engine) report(a *attempt, r reaction) {
	t := &a.trigger
	e.deps.Metrics.messages.WithLabelValues(string(r.outcome)).Inc()
	switch r.outcome {
	case retry:
		e.deps.Metrics.retries.Inc()
	case parked:
		e.deps.Metrics.parked.WithLabelValues(pipeline.WaitsForName(r.parking.WaitsFor)).Inc()
	default:
	}
	level, text := logLine(t, r)
	line := e.lines.Line(level, string(r.outcome))
	if line == nil {
		return
	}
	line = process.LogKey(tracing.Stamp(line, a.span.SpanContext()), t.key)
	line = line.Str("host", weburl.HostOf(t.want.GetUrl())).Uint32("attempt", t.due.GetAttempts()+1)
	line = process.LogCause(line, t.cause).Str("outcome", string(r.outcome))
	if r.wait > 0 {
		line = process.LogDuration(line, "next", r.wait)
	}
	if f := r.failure; f != nil {
		line = line.Str("reason", failure.Reason(f.Class)).Str("error", f.text)
		if f.StatusCode != 0 {
			line = line.Int("status", f.StatusCode)
		}
	}
	if r.dropped {
		line = line.Bool("dead_letter_dropped", true)
	}
	line.Msg(text)
}

// logLine returns the level and the message of the line about an outcome. The level depends on
// whether the state of the key changes.
func logLine(t *trigger, r reaction) (zerolog.Level, string) {
	line := logLines[r.outcome]
	switch {
	case r.outcome == retry:
		line.text += duration.Format(max(r.wait.Round(time.Second), time.Second))
		if !t.failing() {
			line.level = zerolog.InfoLevel
		}
	case r.outcome == gaveUp && t.due.GetGaveUp() && t.reported() == r.failure.Class:
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
		tracing.Fail(a.span, failure.Reason(r.failure.Class))
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
		semconv.ServerAddress(weburl.HostOf(raw)),
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
