package broker

import (
	"fmt"
	"sync/atomic"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/rs/zerolog"
)

// logger passes on warnings and errors. Details of the start are debug lines.
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

// Fatalf would end the process in the stock logger.
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
