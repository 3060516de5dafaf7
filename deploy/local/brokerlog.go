package local

import (
	"fmt"
	"sync/atomic"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/rs/zerolog"
)

// logger logs warnings and errors of the server at their level, and its notices at debug.
type logger struct {
	log       zerolog.Logger
	lastFatal atomic.Pointer[string]
}

var _ server.Logger = (*logger)(nil)

func (l *logger) Noticef(format string, v ...any) { l.log.Debug().Msgf(format, v...) }
func (l *logger) Warnf(format string, v ...any)   { l.log.Warn().Msgf(format, v...) }
func (l *logger) Errorf(format string, v ...any)  { l.log.Error().Msgf(format, v...) }
func (l *logger) Debugf(format string, v ...any)  { l.log.Debug().Msgf(format, v...) }
func (l *logger) Tracef(format string, v ...any)  { l.log.Trace().Msgf(format, v...) }

// Fatalf logs an error. The server's own logger would end the process.
func (l *logger) Fatalf(format string, v ...any) {
	text := fmt.Sprintf(format, v...)
	l.lastFatal.Store(&text)
	l.log.Error().Msg(text)
}

func (l *logger) fatal() string {
	if text := l.lastFatal.Load(); text != nil {
		return *text
	}
	return ""
}
