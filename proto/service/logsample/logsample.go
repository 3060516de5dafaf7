// Package logsample bounds the log lines that come once per message: a burst of
// messages must not become a burst of lines.
package logsample

import (
	"sync"
	"time"

	"github.com/rs/zerolog"
)

const (
	// Burst is how many lines of one kind are written in one Period.
	Burst = 50
	// Period after which lines of a kind are written again, and the number of
	// those left out is written.
	Period = time.Second
)

// Log writes lines of a few kinds, of each at most Burst in a Period. When it
// has left out any, one more line counts them. It is safe for concurrent use.
type Log struct {
	log zerolog.Logger

	mu    sync.Mutex
	kinds map[kind]*count
}

// kind of lines: those of one level, so that a burst of what is usual leaves out no
// warning.
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

// Line returns a line to be filled and sent, or nil, on which all methods do
// nothing: the level is not logged, or the burst of its kind is used up. Kinds are from a
// closed set.
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

// account logs how many lines were left out.
func (l *Log) account(k kind, c *count) {
	l.mu.Lock()
	omitted := c.omitted
	c.omitted = 0
	l.mu.Unlock()
	l.log.WithLevel(k.level).Str("kind", k.name).Int("omitted", omitted).Msg("left out lines of this kind")
}
