package process

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/mattn/go-isatty"
	"github.com/rs/zerolog"
	"github.com/spf13/pflag"
)

// LogOptions select level and format of the log.
type LogOptions struct {
	// Level is the minimum level: debug, info, warn, error.
	Level string
	// Format is json, console, or auto: console on a terminal, else json. On a terminal, console
	// lines have colours and are wrapped at 120 columns.
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

// consoleWidth is the maximum width of a console line, unless a word is longer.
const consoleWidth = 120

// consoleIndent is as wide as time and level, so that wrapped text is aligned.
const consoleIndent = "             "

// colours matches the escape sequences of the console, which have no width.
var colours = regexp.MustCompile(`\x1b\[[0-9;]*m`)

func console(w io.Writer, terminal bool) io.Writer {
	if !terminal {
		return zerolog.ConsoleWriter{Out: w, TimeFormat: time.TimeOnly, NoColor: true}
	}
	return zerolog.ConsoleWriter{
		Out: w, TimeFormat: time.TimeOnly,
		FormatExtra: func(_ map[string]any, line *bytes.Buffer) error {
			text := Wrap(line.String(), consoleWidth, consoleIndent)
			line.Reset()
			_, err := line.WriteString(text)
			return err
		},
	}
}

// Wrap wraps a text between words to that many columns, unless a word is longer. Each line but the
// first begins with the indent.
func Wrap(text string, columns int, indent string) string {
	var lines strings.Builder
	column := 0
	for i, word := range strings.Split(text, " ") {
		width := utf8.RuneCountInString(colours.ReplaceAllString(word, ""))
		switch {
		case i == 0:
		case column+1+width > columns:
			lines.WriteString("\n" + indent)
			column = len(indent)
		default:
			lines.WriteByte(' ')
			column++
		}
		lines.WriteString(word)
		column += width
	}
	return lines.String()
}
