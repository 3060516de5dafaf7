// Package logsample limits log lines that are written per message, so that a burst of messages does
// not flood the log.
package logsample

import (
	"sync"
	"time"

	"github.com/rs/zerolog"
)

const (
	// Burst is the maximum number of lines of one kind in one Period.
	Burst = 50
	// Period is the time after which lines of a kind are written again, after a line with the
	// number of suppressed ones.
	Period = time.Second
)

// Log writes lines of a few kinds, at most Burst of each in a Period, and one more with the number
// of suppressed lines. It is safe for concurrent use.
type Log struct {
	log zerolog.Logger

	mu    sync.Mutex
	kinds map[kind]*count
}

// kind of lines, per level, so that a burst of ordinary lines suppresses no warning.
type kind struct {
	level zerolog.Level
	name  string
}

// count of the lines of a kind in a period.
type count struct {
	began   time.Time
	written int
	omitted int
}

// New returns a Log that writes to log.
func New(log zerolog.Logger) *Log { return &Log{log: log, kinds: map[kind]*count{}} }

// Line returns a line to fill and send. It returns nil, on which all methods do nothing, if the
// level is disabled or the burst of its kind is exhausted. There must be few kinds.
func (l *Log) Line(level zerolog.Level, name string) *zerolog.Event {
	if level < l.log.GetLevel() {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	k := kind{level, name}
	c := l.kinds[k]
	if c == nil {
		c = new(count)
		l.kinds[k] = c
	}
	if now := time.Now(); now.Sub(c.began) >= Period {
		c.began, c.written = now, 0
	}
	if c.written < Burst {
		c.written++
		return l.log.WithLevel(level) //nolint:zerologlint // the caller sends it
	}
	if c.omitted++; c.omitted == 1 {
		time.AfterFunc(Period, func() { l.account(k, c) })
	}
	return nil
}

// account logs the number of suppressed lines.
func (l *Log) account(k kind, c *count) {
	l.mu.Lock()
	omitted := c.omitted
	c.omitted = 0
	l.mu.Unlock()
	l.log.WithLevel(k.level).Str("kind", k.name).Int("omitted", omitted).Msg("omitted similar lines")
}
