package process

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
)

const (
	// LogBurst is the maximum number of lines of one kind in one LogPeriod.
	LogBurst = 50
	// LogPeriod is the time from a burst until lines of its kind are written again, after a line with
	// the number of suppressed ones.
	LogPeriod = time.Second
)

// SampledLog limits lines that are written per message, so that a burst of messages does not flood the log. It
// writes at most LogBurst lines of each kind in a LogPeriod, and one more with the number of suppressed lines. It is
// safe for concurrent use.
type SampledLog struct {
	log zerolog.Logger

	mu    sync.Mutex
	kinds map[kind]zerolog.Logger
}

// kind of lines. It includes the level, so that a burst of ordinary lines suppresses no warning.
type kind struct {
	level zerolog.Level
	name  string
}

// NewSampledLog returns a SampledLog that writes to log.
func NewSampledLog(log zerolog.Logger) *SampledLog {
	return &SampledLog{log: log, kinds: map[kind]zerolog.Logger{}}
}

// Line returns a line to fill and send. It returns nil, on which all methods do nothing, if the
// level is disabled or the burst of its kind is exhausted. There must be few kinds.
func (l *SampledLog) Line(level zerolog.Level, name string) *zerolog.Event {
	l.mu.Lock()
	defer l.mu.Unlock()
	k := kind{level, name}
	log, known := l.kinds[k]
	if !known {
		after := &omitted{log: l.log, kind: name}
		log = l.log.Sample(&zerolog.BurstSampler{Burst: LogBurst, Period: LogPeriod, NextSampler: after})
		l.kinds[k] = log
	}
	return log.WithLevel(level) //nolint:zerologlint // the caller sends it
}

// omitted counts the lines of a kind after a burst, and logs their number.
type omitted struct {
	log   zerolog.Logger
	kind  string
	lines atomic.Int64
}

// Sample implements zerolog.Sampler and drops every line.
func (o *omitted) Sample(level zerolog.Level) bool {
	if o.lines.Add(1) == 1 {
		time.AfterFunc(LogPeriod, func() {
			o.log.WithLevel(level).Str("kind", o.kind).Int64("omitted", o.lines.Swap(0)).Msg("omitted similar lines")
		})
	}
	return false
}
