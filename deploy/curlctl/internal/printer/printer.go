// Package printer prints tables for people, and JSON, YAML and names for programs, as kubectl does. It accepts
// untrusted text: control characters never reach the terminal.
package printer

import (
	"fmt"
	"io"
	"iter"
	"math"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/mattn/go-isatty"
	"github.com/spf13/pflag"
	"golang.org/x/term"
)

// Options select the output format.
type Options struct {
	// Format is table, wide, json, yaml or name.
	Format string
	// NoHeaders omits the header of a table.
	NoHeaders bool
}

// Formats are the values of Format.
func Formats() []string { return []string{"table", "wide", "json", "yaml", "name"} }

// BindFlags adds the flags of the options.
func (o *Options) BindFlags(fs *pflag.FlagSet) {
	fs.StringVarP(&o.Format, "output", "o", "table", "output format: table, wide, json, yaml or name")
	fs.BoolVar(&o.NoHeaders, "no-headers", false, "print tables without a header")
}

// Validate checks the format.
func (o *Options) Validate() error {
	if slices.Contains(Formats(), o.Format) {
		return nil
	}
	return fmt.Errorf("--output: %q is not one of %s", o.Format, strings.Join(Formats(), ", "))
}

// Printer prints to one stream. Linef and Textf are safe for concurrent use.
type Printer struct {
	options Options
	out     io.Writer
	colour  bool
	mu      sync.Mutex
}

// New returns a printer. It uses colours on a terminal, unless NO_COLOR is set.
func New(out io.Writer, o Options) *Printer {
	return &Printer{options: o, out: out, colour: Terminal(out) && os.Getenv("NO_COLOR") == ""}
}

// Terminal reports whether w is a terminal.
func Terminal(w any) bool {
	f, ok := w.(*os.File)
	return ok && isatty.IsTerminal(f.Fd())
}

// ForPrograms reports whether the output is json, yaml or names.
func (p *Printer) ForPrograms() bool {
	return p.options.Format == "json" || p.options.Format == "yaml" || p.options.Format == "name"
}

// Linef prints one line.
func (p *Printer) Linef(format string, args ...any) { p.Textf(format+"\n", args...) }

// Textf prints a text. It makes every argument printable, and paints a Cell in its colour.
func (p *Printer) Textf(format string, args ...any) {
	for i, arg := range args {
		switch arg := arg.(type) {
		case Cell:
			args[i] = arg.paint(p.colour)
		case error, fmt.Stringer:
			args[i] = Printable(fmt.Sprint(arg))
		default:
			if reflect.ValueOf(arg).Kind() == reflect.String {
				args[i] = Printable(fmt.Sprint(arg))
			}
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Fprintf(p.out, format, args...)
}

// Row is one item of a list.
type Row struct {
	// Cells by column.
	Cells []Cell
	// Name for -o name, such as failure/12.
	Name string
	// Object for -o json and yaml.
	Object any
}

// Rows makes a row of each item.
func Rows[T any](items []T, row func(T) Row) iter.Seq2[Row, error] {
	return func(yield func(Row, error) bool) {
		for _, item := range items {
			if !yield(row(item), nil) {
				return
			}
		}
	}
}

// tableRows is the number of rows that a table buffers to align them. If the terminal is wide enough, columns
// never get narrower from one batch to the next.
const tableRows = 1000

// List prints rows and returns their number. JSON, YAML and names are printed as rows arrive, and tables in
// batches of tableRows.
func (p *Printer) List(table Table, rows iter.Seq2[Row, error]) (n int, err error) {
	out := p.sink(table)
	for row, err := range rows {
		if err == nil {
			err = out.add(row)
		}
		if err != nil {
			return n, err
		}
		n++
	}
	out.end()
	return n, nil
}

// sink takes the rows of a list.
type sink interface {
	add(row Row) error
	end()
}

func (p *Printer) sink(t Table) sink {
	switch p.options.Format {
	case "json", "yaml":
		return &stream{p: p}
	case "name":
		return names{p}
	}
	return &table{
		p: p, columns: t.columns(), room: p.Width(), wide: p.options.Format == "wide", headers: !p.options.NoHeaders,
	}
}

// names prints the names of rows.
type names struct{ *Printer }

func (n names) add(row Row) error {
	n.Linef("%s", row.Name)
	return nil
}

func (names) end() {}

// Object prints one object for programs.
func (p *Printer) Object(name string, object any) error {
	if p.options.Format == "name" {
		p.Linef("%s", name)
		return nil
	}
	text, err := p.encode(object)
	if err == nil {
		fmt.Fprintln(p.out, strings.TrimRight(text, "\n"))
	}
	return err
}

// Width returns $COLUMNS if it is set, or else the width of the terminal (0: no terminal).
func (p *Printer) Width() int {
	if n, err := strconv.Atoi(os.Getenv("COLUMNS")); err == nil && n > 0 {
		return n
	}
	if f, ok := p.out.(*os.File); ok && Terminal(f) {
		if n, _, err := term.GetSize(int(f.Fd())); err == nil {
			return n
		}
	}
	return 0
}

// Fields prints the fields of one object for people, without empty values. A value that is too long for the
// terminal continues on the next line.
func (p *Printer) Fields(fields []Field) {
	width := 0
	for _, f := range fields {
		width = max(width, len(f.Name))
	}
	room := math.MaxInt
	if terminal := p.Width(); terminal > 0 {
		room = terminal - width - 3
	}
	for _, f := range fields {
		value := cellOf(f.Value)
		if value.Text == "" {
			continue
		}
		name := f.Name + ":"
		for _, line := range Wrap(value.Text, room) {
			p.Linef("%-*s  %s", width+1, name, In(value.Colour, line))
			name = ""
		}
	}
}

// Field of one object.
type Field struct {
	Name string
	// Value is a text, a number or a Cell.
	Value any
}

// Bar shows progress on a terminal, and nothing elsewhere.
type Bar struct {
	out  *Printer
	verb string
	all  int
	live bool

	mu    sync.Mutex
	shown time.Time
	width int
}

const barEvery = 50 * time.Millisecond

// Bar returns a bar that counts up to all.
func (p *Printer) Bar(verb string, all int) *Bar {
	return &Bar{out: p, verb: verb, all: all, live: Terminal(p.out)}
}

// Set prints the progress, at most once per barEvery.
func (b *Bar) Set(n int, note string) {
	if !b.live || b.all == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	if n < b.all && now.Sub(b.shown) < barEvery {
		return
	}
	b.shown = now
	line := fmt.Sprintf("%s of %s %s", Grouped(n), Grouped(b.all), b.verb)
	if note != "" {
		line += ", " + note
	}
	b.out.Textf("\r%s%s", line, strings.Repeat(" ", max(0, b.width-len(line))))
	b.width = len(line)
}

// End moves to the next line.
func (b *Bar) End() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.width > 0 {
		b.out.Linef("")
	}
	b.width = 0
}
