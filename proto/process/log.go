package process

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"regexp"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mattn/go-isatty"
	"github.com/rs/zerolog"
	"github.com/spf13/pflag"

	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/weburl"
)

// LogOptions select level and format of the log.
type LogOptions struct {
	// Level is the minimum level: debug, info, warn, error.
	Level string
	// Format is json, console, or auto: console on a terminal, else json. On a terminal, console
	// lines have colours.
	Format string
}

// BindFlags adds the flags of the options.
func (l *LogOptions) BindFlags(fs *pflag.FlagSet) {
	fs.StringVar(&l.Level, "log-level", "info", "minimum log level: debug, info, warn or error")
	fs.StringVar(&l.Format, "log-format", "auto", "log format: json, console, or auto: console on a terminal, else json")
}

// New returns a logger that writes to w, with the name of the service, if any.
func (l *LogOptions) New(w io.Writer, name string) (zerolog.Logger, error) {
	level, err := zerolog.ParseLevel(l.Level)
	if err != nil || l.Level == "" {
		return zerolog.Nop(), fmt.Errorf("--log-level: %q is not one of debug, info, warn, error", l.Level)
	}
	f, isFile := w.(*os.File)
	terminal := isFile && isatty.IsTerminal(f.Fd())
	switch l.Format {
	case "json":
	case "console":
		w = console(w, terminal)
	case "auto":
		if terminal {
			w = console(w, terminal)
		}
	default:
		return zerolog.Nop(), fmt.Errorf("--log-format: %q is not one of json, console, auto", l.Format)
	}
	w = redacting{w}
	log := zerolog.New(w).Level(level).With().Timestamp()
	if name != "" {
		log = log.Str("service", name)
	}
	return log.Logger(), nil
}

func console(w io.Writer, terminal bool) io.Writer {
	return zerolog.ConsoleWriter{Out: w, TimeFormat: time.TimeOnly, NoColor: !terminal}
}

// LogKey adds a key as key=namespace/name/key.
func LogKey(line *zerolog.Event, key pipeline.Key) *zerolog.Event {
	return line.Str("key", key.String())
}

// LogObject adds a ConfigMap as configmap=namespace/name.
func LogObject(line *zerolog.Event, namespace, name string) *zerolog.Event {
	return line.Str("configmap", namespace+"/"+name)
}

// LogCause adds the cause of a fetch, such as cause=retry, with the same word as in metric labels,
// traces and curlctl.
func LogCause(line *zerolog.Event, cause v1.Cause) *zerolog.Event {
	return line.Str("cause", pipeline.CauseName(cause))
}

// LogDuration adds a readable duration, such as next=1m20s, without insignificant digits.
func LogDuration(line *zerolog.Event, name string, d time.Duration) *zerolog.Event {
	return line.Str(name, rounded(d).String())
}

func rounded(d time.Duration) time.Duration {
	for _, unit := range []time.Duration{time.Second, time.Millisecond, time.Microsecond} {
		if d >= 10*unit {
			return d.Round(unit)
		}
	}
	return d
}

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
func (s *SampledLog) Line(level zerolog.Level, name string) *zerolog.Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := kind{level, name}
	log, known := s.kinds[k]
	if !known {
		after := &omitted{log: s.log, kind: name}
		log = s.log.Sample(&zerolog.BurstSampler{Burst: LogBurst, Period: LogPeriod, NextSampler: after})
		s.kinds[k] = log
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

// redacting removes addresses in network errors from log lines: "read tcp
// 10.0.0.1:53418->10.0.0.2:443: …". Many libraries produce such texts, and all of them pass here. The
// configured broker addresses stay.
type redacting struct{ to io.Writer }

// addresses matches host addresses, and complete broker addresses.
var addresses = regexp.MustCompile(`(?:nats|tls|wss?)://[^\s",]*|` +
	`\b[0-9]{1,3}(?:\.[0-9]{1,3}){3}\b(?::[0-9]+)?|` +
	`\[[0-9A-Fa-f]*:[0-9A-Fa-f]*:[0-9A-Fa-f:.]*(?:%[0-9A-Za-z]+)?\](?::[0-9]+)?`)

// Write writes one line. It returns the length of line, even if fewer bytes were written.
func (r redacting) Write(line []byte) (int, error) {
	_, err := r.to.Write(addresses.ReplaceAllFunc(line, func(found []byte) []byte {
		if bytes.Contains(found, []byte("://")) {
			return found
		}
		return []byte(weburl.HiddenHost)
	}))
	if err != nil {
		return 0, err
	}
	return len(line), nil
}
