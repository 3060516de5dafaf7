package apply

import (
	"github.com/rs/zerolog"

	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/writer/internal/judge"
)

// about returns a logger that names an item. It never tells the query of the
// URL, nor anything of the body.
func (t *task) about(i judge.Item) *zerolog.Logger {
	log := t.Log.With().
		Str("namespace", i.Key.Namespace).Str("configmap", i.Key.Name).Str("key", i.Key.Key).
		Str("host", judge.Host(i.Result.GetWant().GetUrl())).Logger()
	return &log
}

// report logs what became of an item: what changes something is worth knowing,
// the rest is for whoever looks for it.
func (t *task) report(i judge.Item, d judge.Decision) {
	level := zerolog.DebugLevel
	if d.Verdict == judge.Written || d.Verdict == judge.Refused || d.Verdict == judge.NotOurs {
		level = zerolog.InfoLevel
	}
	if t.Log.GetLevel() > level {
		return
	}
	line := t.about(i).WithLevel(level).Str("verdict", d.Verdict.String())
	if f := i.Result.GetFailure(); f != nil {
		line = line.Str("reason", pipeline.Reason(f.GetClass())).Uint32("attempt", f.GetAttempts())
	}
	if c := i.Result.GetContent(); c != nil {
		line = line.Int("bytes", len(c.GetBody()))
	}
	line.Msg("result applied")
}
