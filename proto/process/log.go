package process

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/mattn/go-isatty"
	"github.com/rs/zerolog"
	"github.com/spf13/pflag"
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
func (o *LogOptions) BindFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.Level, "log-level", "info", "minimum log level: debug, info, warn or error")
	fs.StringVar(&o.Format, "log-format", "auto", "log format: json, console, or auto: console on a terminal, else json")
}

// New returns a logger that writes to w, with the name of the service, if any.
func (o *LogOptions) New(w io.Writer, name string) (zerolog.Logger, error) {
	level, err := zerolog.ParseLevel(o.Level)
	if err != nil || o.Level == "" {
		return zerolog.Nop(), fmt.Errorf("--log-level: %q is not one of debug, info, warn, error", o.Level)
	}
	f, isFile := w.(*os.File)
	terminal := isFile && isatty.IsTerminal(f.Fd())
	switch o.Format {
	case "json":
	case "console":
		w = console(w, terminal)
	case "auto":
		if terminal {
			w = console(w, terminal)
		}
	default:
		return zerolog.Nop(), fmt.Errorf("--log-format: %q is not one of json, console, auto", o.Format)
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
