package broker

import (
	"github.com/rs/zerolog"
)

// logger passes on warnings and errors. Details of the start are debug lines.
type logger struct{ log zerolog.Logger }

func (l logger) Noticef(format string, v ...any) { l.log.Debug().Msgf(format, v...) }
func (l logger) Warnf(format string, v ...any)   { l.log.Warn().Msgf(format, v...) }
func (l logger) Errorf(format string, v ...any)  { l.log.Error().Msgf(format, v...) }
func (l logger) Debugf(format string, v ...any)  { l.log.Debug().Msgf(format, v...) }
func (l logger) Tracef(format string, v ...any)  { l.log.Trace().Msgf(format, v...) }

// Fatalf would end the process in the stock logger.
func (l logger) Fatalf(format string, v ...any) { l.Errorf(format, v...) }
