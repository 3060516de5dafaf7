package apply

import (
	"github.com/rs/zerolog"

	"github.com/kv8s/curl-me-that/proto/failure"
	"github.com/kv8s/curl-me-that/proto/process"
	"github.com/kv8s/curl-me-that/proto/process/tracing"
	"github.com/kv8s/curl-me-that/proto/weburl"
	"github.com/kv8s/curl-me-that/writer/internal/plan"
)

// Kinds of log lines without an outcome.
const (
	kindEventFailed = "event_failed"
	kindEventDenied = "event_denied"
	kindOverBudget  = "over_budget"
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
	return line.Str("host", weburl.HostOf(i.Result.GetWant().GetUrl()))
}

// resultLine begins a log line with the outcome of an item.
func (t *task) resultLine(i plan.Item, level zerolog.Level, v plan.Outcome) *zerolog.Event {
	return t.line(i, level, string(v)).Str("outcome", string(v))
}

// logResult logs changes of state at level info and everything else at debug.
func (t *task) logResult(i plan.Item, d plan.Decision) {
	level := zerolog.DebugLevel
	if d.Outcome == plan.Written && (i.OfObject() || i.Result.GetContent() != nil) ||
		d.Outcome != plan.Unchanged && len(d.Events) > 0 {
		level = zerolog.InfoLevel
	}
	line := t.resultLine(i, level, d.Outcome)
	if f := i.Result.GetFailure(); f != nil {
		line = line.Str("reason", failure.Reason(f.GetClass())).Uint32("attempt", f.GetAttempts())
	}
	if c := i.Result.GetContent(); c != nil {
		line = line.Int("bytes", len(c.GetBody()))
	}
	line.Msg(describe(i, d.Outcome))
}

// describe says what happened to an item.
func describe(i plan.Item, v plan.Outcome) string {
	if v == plan.Written && i.Result.GetContent() == nil {
		return "status written"
	}
	return string(v)
}
