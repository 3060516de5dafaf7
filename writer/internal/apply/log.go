package apply

import (
	"github.com/rs/zerolog"

	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/process"
	"github.com/kv8s/curl-me-that/proto/process/tracing"
	"github.com/kv8s/curl-me-that/writer/internal/plan"
)

// Kinds of log lines without a verdict.
const (
	kindEventFailed  = "event_failed"
	kindEventRefused = "event_refused"
	kindOverBudget   = "over_budget"
)

// line begins a log line about an item. It contains only the host of the URL, and nothing of the body. It
// returns nil if there are too many lines of its kind.
func (t *task) line(i plan.Item, level zerolog.Level, kind string) *zerolog.Event {
	line := t.lines.Line(level, kind)
	if line == nil {
		return nil
	}
	line = process.LogKey(tracing.Stamp(line, i.Trace), i.Key)
	if i.OfObject() {
		return line
	}
	return line.Str("host", pipeline.HostOf(i.Result.GetWant().GetUrl()))
}

// resultLine begins a log line with the verdict on an item.
func (t *task) resultLine(i plan.Item, level zerolog.Level, v plan.Verdict) *zerolog.Event {
	return t.line(i, level, string(v)).Str("verdict", string(v))
}

// logResult logs changes of state at level info and everything else at debug.
func (t *task) logResult(i plan.Item, d plan.Decision) {
	level := zerolog.DebugLevel
	if d.Verdict == plan.Written && (i.OfObject() || i.Result.GetContent() != nil) ||
		d.Verdict != plan.Unchanged && len(d.Events) > 0 {
		level = zerolog.InfoLevel
	}
	line := t.resultLine(i, level, d.Verdict)
	if f := i.Result.GetFailure(); f != nil {
		line = line.Str("reason", pipeline.Reason(f.GetClass())).Uint32("attempt", f.GetAttempts())
	}
	if c := i.Result.GetContent(); c != nil {
		line = line.Int("bytes", len(c.GetBody()))
	}
	line.Msg(describe(i, d.Verdict))
}

// describe says what happened to an item.
func describe(i plan.Item, v plan.Verdict) string {
	if v == plan.Written && i.Result.GetContent() == nil {
		return "status written"
	}
	return string(v)
}
