package broker

import (
	"fmt"
	"sync/atomic"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/rs/zerolog"
)

// logger passes on what an operator has to know. What the server logs
// about its start are details here.
type logger struct {
	log  zerolog.Logger
	last atomic.Pointer[string]
}

var _ server.Logger = (*logger)(nil)

func (l *logger) Noticef(format string, v ...any) { l.log.Debug().Msgf(format, v...) }
func (l *logger) Warnf(format string, v ...any)   { l.log.Warn().Msgf(format, v...) }
func (l *logger) Errorf(format string, v ...any)  { l.log.Error().Msgf(format, v...) }
func (l *logger) Debugf(format string, v ...any)  { l.log.Debug().Msgf(format, v...) }
func (l *logger) Tracef(format string, v ...any)  { l.log.Trace().Msgf(format, v...) }

// Fatalf is what the stock logger ends the process with.
func (l *logger) Fatalf(format string, v ...any) {
	text := fmt.Sprintf(format, v...)
	l.last.Store(&text)
	l.log.Error().Msg(text)
}

func (l *logger) fatal() string {
	if text := l.last.Load(); text != nil {
		return *text
	}
	return ""
}
