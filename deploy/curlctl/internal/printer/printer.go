// Package printer prints tables for people, and JSON and names for programs, as kubectl does. It accepts untrusted
// text: control characters never reach the terminal.
package printer

import (
	"fmt"
	"io"
	"iter"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"unicode"

	"github.com/mattn/go-isatty"
	"github.com/spf13/pflag"
)

// Options select the output format.
type Options struct {
	// Format is table, wide, json or name.
	Format string
	// NoHeaders omits the header of a table.
	NoHeaders bool
}

// Formats are the values of Format.
func Formats() []string { return []string{"table", "wide", "json", "name"} }

// BindFlags adds the flags of the options.
func (o *Options) BindFlags(fs *pflag.FlagSet) {
	fs.StringVarP(&o.Format, "output", "o", "table", "output format: table, wide, json or name")
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
	mu      sync.Mutex
}

// New returns a printer.
func New(out io.Writer, o Options) *Printer { return &Printer{options: o, out: out} }

// Terminal reports whether w is a terminal.
func Terminal(w any) bool {
	f, ok := w.(*os.File)
	return ok && isatty.IsTerminal(f.Fd())
}

// ForPrograms reports whether the output is json or names.
func (p *Printer) ForPrograms() bool { return p.options.Format == "json" || p.options.Format == "name" }

// Linef prints one line.
func (p *Printer) Linef(format string, args ...any) { p.Textf(format+"\n", args...) }

// Textf prints a text. It makes every argument printable.
func (p *Printer) Textf(format string, args ...any) {
	for i, arg := range args {
		switch arg.(type) {
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

// Progress returns a function that shows on a terminal how many of all are done, on one line.
func (p *Printer) Progress(verb string, all int) func(done int) {
	if !Terminal(p.out) {
		return func(int) {}
	}
	return func(done int) {
		p.Textf("\r%s of %s %s", Grouped(done), Grouped(all), verb)
		if done == all {
			p.Textf("\n")
		}
	}
}

// Table names the columns of a list, separated by "|". Only -o wide shows the columns of Wide.
type Table struct{ Columns, Wide string }

// Row is one item of a list.
type Row struct {
	// Cells by column.
	Cells []string
	// Name for -o name, such as failure/12.
	Name string
	// Object for -o json.
	Object any
}

// Cells converts values to texts. An empty one becomes "-".
func Cells(values ...any) []string {
	cells := make([]string, len(values))
	for i, value := range values {
		if cells[i] = Printable(fmt.Sprint(value)); cells[i] == "" {
			cells[i] = "-"
		}
	}
	return cells
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

// tableRows is the number of rows that a table buffers to align them.
const tableRows = 1000

// List prints rows and returns their number. JSON and names are printed as rows arrive, and tables in batches of
// tableRows.
func (p *Printer) List(table Table, rows iter.Seq2[Row, error]) (n int, err error) {
	columns := strings.Split(table.Columns, "|")
	shown := len(columns)
	if p.options.Format == "wide" && table.Wide != "" {
		columns = append(columns, strings.Split(table.Wide, "|")...)
		shown = len(columns)
	}
	lines := tabwriter.NewWriter(p.out, 0, 0, 3, ' ', 0)
	line := func(cells []string) { fmt.Fprintln(lines, strings.Join(cells, "\t")) }
	for row, err := range rows {
		if err != nil {
			return n, err
		}
		switch p.options.Format {
		case "json":
			err = p.item(n, row.Object)
		case "name":
			p.Linef("%s", row.Name)
		default:
			if n == 0 && !p.options.NoHeaders {
				line(columns)
			}
			if line(row.Cells[:shown]); n%tableRows == tableRows-1 {
				err = lines.Flush()
			}
		}
		if err != nil {
			return n, err
		}
		n++
	}
	if p.options.Format == "json" {
		p.end(n)
	}
	return n, lines.Flush()
}

// Field of one object.
type Field struct {
	Name  string
	Value any
}

// Fields prints the fields of one object for people, without empty values.
func (p *Printer) Fields(fields []Field) {
	width := 0
	for _, f := range fields {
		width = max(width, len(f.Name))
	}
	for _, f := range fields {
		if value := fmt.Sprint(f.Value); value != "" {
			p.Linef("%-*s  %s", width+1, f.Name+":", value)
		}
	}
}

// Printable replaces control and invisible characters, so that tenants and servers cannot steer the terminal.
func Printable(text string) string {
	return strings.Map(func(r rune) rune {
		if ' ' <= r && r <= '~' || unicode.IsPrint(r) { // most characters are ASCII
			return r
		}
		return unicode.ReplacementChar
	}, text)
}
