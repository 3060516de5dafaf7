package apply

import (
	"github.com/rs/zerolog"

	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/service/tracing"
	"github.com/kv8s/curl-me-that/writer/internal/judge"
)

// about begins a line that names an item; nil if there are too many of its kind.
// It never tells the query of the URL, nor anything of the body.
func (t *task) about(i judge.Item, level zerolog.Level, kind string) *zerolog.Event {
	line := t.lines.Line(level, kind)
	if line == nil {
		return nil
	}
	return tracing.Stamp(line, i.Trace).
		Str("namespace", i.Key.Namespace).Str("configmap", i.Key.Name).Str("key", i.Key.Key).
		Str("host", judge.Host(i.Result.GetWant().GetUrl()))
}

// report logs what became of an item: what changes something is worth knowing,
// the rest is for whoever looks for it.
func (t *task) report(i judge.Item, d judge.Decision) {
	level := zerolog.DebugLevel
	if d.Verdict == judge.Written || d.Verdict == judge.Refused || d.Verdict == judge.NotOurs {
		level = zerolog.InfoLevel
	}
	line := t.about(i, level, d.Verdict.String())
	if line == nil {
		return
	}
	line = line.Str("verdict", d.Verdict.String())
	if f := i.Result.GetFailure(); f != nil {
		line = line.Str("reason", pipeline.Reason(f.GetClass())).Uint32("attempt", f.GetAttempts())
	}
	if c := i.Result.GetContent(); c != nil {
		line = line.Int("bytes", len(c.GetBody()))
	}
	line.Msg("result applied")
}
