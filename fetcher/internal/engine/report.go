package engine

import (
	"github.com/rs/zerolog"

	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/process/budget"
	"github.com/kv8s/curl-me-that/proto/process/logfield"
	"github.com/kv8s/curl-me-that/proto/process/tracing"
)

// report counts and logs an outcome, without the URL, which may contain secrets, and without text
// of the server.
func (e *Engine) report(t *trigger, ended ending) {
	e.deps.Metrics.requests.WithLabelValues(string(ended.outcome)).Inc()
	level := zerolog.InfoLevel
	switch ended.outcome {
	case gaveUp, malformed:
		level = zerolog.WarnLevel
	case parked, waits, superseded, tombstone, inSync, postponed:
		level = zerolog.DebugLevel
	default:
	}
	line := e.lines.Line(level, string(ended.outcome))
	if line == nil {
		return
	}
	line = logfield.Key(tracing.Stamp(line, t.span.SpanContext()), t.key)
	line = logfield.Cause(line.Str("host", pipeline.HostOf(t.want.GetUrl())).Uint32("attempt", t.attempts+1), t.cause).
		Str("outcome", string(ended.outcome))
	if ended.wait > 0 {
		line = logfield.Duration(line, "next", ended.wait)
	}
	if ended.failure.Class != 0 {
		line = line.Str("reason", pipeline.Reason(ended.failure.Class)).Str("error", ended.failure.text)
	}
	if ended.failure.StatusCode != 0 {
		line = line.Int("status", ended.failure.StatusCode)
	}
	if ended.dropped {
		line = line.Bool("dead_letter_dropped", true)
	}
	line.Msg("message handled")
}

// logShortage logs that a namespace has exceeded a budget, once.
func (e *Engine) logShortage(t *trigger, short *budget.Shortage, kind, text string) {
	if !short.First {
		return
	}
	line := e.lines.Line(zerolog.WarnLevel, kind)
	if line == nil {
		return
	}
	logfield.Duration(line.Str("namespace", t.key.Namespace).Str("budget", kind), "next", short.Wait).Msg(text)
}
