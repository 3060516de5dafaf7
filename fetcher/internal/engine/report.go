package engine

import (
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/kv8s/curl-me-that/proto/annotation/duration"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/process/budget"
	"github.com/kv8s/curl-me-that/proto/process/logfield"
	"github.com/kv8s/curl-me-that/proto/process/tracing"
)

// report counts and logs an outcome, without the URL, which may contain secrets, and without text of
// the server. If there are too many lines of one outcome, they are only counted.
func (e *Engine) report(t *trigger, ended ending) {
	e.deps.Metrics.requests.WithLabelValues(string(ended.outcome)).Inc()
	host := pipeline.HostOf(t.want.GetUrl())
	e.health.observe(e.deps.Log, host, t, ended)
	level, text := describe(t, ended)
	line := e.lines.Line(level, string(ended.outcome))
	if line == nil {
		return
	}
	line = logfield.Key(tracing.Stamp(line, t.span.SpanContext()), t.key)
	line = logfield.Cause(line.Str("host", host).Uint32("attempt", t.past.GetAttempts()+1), t.cause).
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
	line.Msg(text)
}

// describe returns the level and the message of the line about an outcome. The level depends on
// whether the state of the key changes.
func describe(t *trigger, ended ending) (zerolog.Level, string) {
	line := logLines[ended.outcome]
	switch {
	case ended.outcome == retry:
		line.text += duration.Format(max(ended.wait.Round(time.Second), time.Second))
		if !t.failing() {
			line.level = zerolog.InfoLevel
		}
	case ended.outcome == gaveUp && t.past.GetGaveUp() && t.reported() == ended.failure.Class:
		line.level = zerolog.DebugLevel
	}
	return line.level, line.text
}

const (
	// manyKeys is the number of keys that must begin to fail, with no success of their host in
	// between, before the host is logged.
	manyKeys = 10
	// maxFailingHosts is the maximum number of hosts to remember.
	maxFailingHosts = 10_000
)

// hostHealth logs once when a host begins to fail for many keys, and once when it recovers.
type hostHealth struct {
	mu sync.Mutex
	// failing is the number of keys that began to fail since the last success of a host.
	failing map[string]int
}

func (h *hostHealth) observe(log zerolog.Logger, host string, t *trigger, ended ending) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch ended.outcome {
	case content, recovered, unmodified:
		if keys := h.failing[host]; keys >= manyKeys {
			log.Info().Str("host", host).Int("keys", keys).Msg("host recovered")
		}
		delete(h.failing, host)
	case retry, gaveUp:
		known := h.failing[host] > 0 || len(h.failing) < maxFailingHosts
		if t.failing() || !known || !pipeline.Retries(ended.failure.Failure(), 0, 1) {
			return
		}
		if h.failing[host]++; h.failing[host] == manyKeys {
			log.Warn().Str("host", host).Int("keys", manyKeys).Str("reason", pipeline.Reason(ended.failure.Class)).
				Msg("host is failing for many keys")
		}
	default:
	}
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
	logfield.Duration(line.Str("namespace", t.key.Namespace).Str("budget", kind), "next", short.Wait).Msg(text)
}
