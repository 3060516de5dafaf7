// Package printer prints tables for people, and JSON and names for programs, as kubectl does. It accepts untrusted
// text: control characters never reach the terminal.
package printer

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"
	"unicode"
	"unicode/utf16"

	"github.com/mattn/go-isatty"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/duration"
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
	// terminal: Progress prints. begun: its line has no end yet.
	terminal, begun bool
	mu              sync.Mutex
}

// New returns a printer.
func New(out io.Writer, o Options) *Printer {
	return &Printer{options: o, out: out, terminal: Terminal(out)}
}

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
	p.endLine()
	fmt.Fprintf(p.out, format, args...)
}

// Progress returns a function that shows on a terminal how many of all are done, on one line.
func (p *Printer) Progress(verb string, all int) func(done int) {
	return func(done int) {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.terminal {
			fmt.Fprintf(p.out, "\r%s of %s %s", Grouped(done), Grouped(all), verb)
			p.begun = true
		}
		if done == all {
			p.endLine()
		}
	}
}

// EndLine ends the line of an unfinished Progress.
func (p *Printer) EndLine() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.endLine()
}

func (p *Printer) endLine() {
	if p.begun {
		fmt.Fprintln(p.out)
		p.begun = false
	}
}

// Row is one item of a list.
type Row struct {
	// Cells are shown in tables, and Wide only with -o wide.
	Cells, Wide []Cell
	// Name for -o name, such as failure/12.
	Name string
	// Object for -o json.
	Object any
}

// Cell is a text in a column.
type Cell struct{ Column, Text string }

// Cells returns a cell for each column and its value. An empty text becomes "-".
func Cells(columnsAndValues ...any) (cells []Cell) {
	for pair := range slices.Chunk(columnsAndValues, 2) {
		text := Printable(fmt.Sprint(pair[1]))
		cells = append(cells, Cell{Column: fmt.Sprint(pair[0]), Text: cmp.Or(text, "-")})
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
// tableRows. On error it prints the rows before it.
func (p *Printer) List(rows iter.Seq2[Row, error]) (n int, err error) {
	lines := tabwriter.NewWriter(p.out, 0, 0, 3, ' ', 0)
	if p.options.Format == "json" {
		fmt.Fprint(p.out, `{"items": [`)
		defer fmt.Fprint(p.out, "\n]}\n")
	}
	var row Row
	for row, err = range rows {
		if err == nil {
			switch p.options.Format {
			case "json":
				err = p.item(n, row.Object)
			case "name":
				p.Linef("%s", row.Name)
			default:
				p.line(lines, row, n == 0 && !p.options.NoHeaders)
				if n%tableRows == tableRows-1 {
					err = lines.Flush()
				}
			}
		}
		if err != nil {
			break
		}
		n++
	}
	return n, cmp.Or(err, lines.Flush())
}

// line writes a row of a table, after the names of its columns if it is the first one.
func (p *Printer) line(to io.Writer, row Row, first bool) {
	cells := row.Cells
	if p.options.Format == "wide" {
		cells = slices.Concat(cells, row.Wide)
	}
	columns, texts := make([]string, len(cells)), make([]string, len(cells))
	for i, cell := range cells {
		columns[i], texts[i] = cell.Column, cell.Text
	}
	if first {
		fmt.Fprintln(to, strings.Join(columns, "\t"))
	}
	fmt.Fprintln(to, strings.Join(texts, "\t"))
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

// Bare reports whether a shell takes a word as it is, without quotes.
func Bare(word string) bool {
	return word != "" && !strings.ContainsFunc(word, func(r rune) bool {
		return !strings.ContainsRune("-_=./:,@%+", r) && (r > unicode.MaxASCII || !unicode.IsLetter(r) && !unicode.IsDigit(r))
	})
}

// item prints the next item of {"items": […]}, after n others.
func (p *Printer) item(n int, object any) error {
	text, err := json.MarshalIndent(object, "  ", "  ")
	begin := ",\n  "
	if n == 0 {
		begin = "\n  "
	}
	if err == nil {
		fmt.Fprint(p.out, begin+Escaped(string(text)))
	}
	return err
}

// Object prints one object for programs.
func (p *Printer) Object(name string, object any) error {
	if p.options.Format == "name" {
		p.Linef("%s", name)
		return nil
	}
	text, err := json.MarshalIndent(object, "", "  ")
	if err == nil {
		fmt.Fprintln(p.out, Escaped(string(text)))
	}
	return err
}

// Escaped replaces control and invisible characters with JSON escape sequences, so that tenants and servers cannot
// hide text.
func Escaped(text string) string {
	var b strings.Builder
	for _, r := range text {
		switch {
		case r == '\n' || r == '\t' || unicode.IsPrint(r):
			b.WriteRune(r)
		case r > 0xFFFF:
			high, low := utf16.EncodeRune(r)
			fmt.Fprintf(&b, "\\u%04x\\u%04x", high, low)
		default:
			fmt.Fprintf(&b, "\\u%04x", r)
		}
	}
	return b.String()
}

// Age returns how long ago a time was, in the format of kubectl (empty for no time).
func Age(now, at time.Time) string {
	if at.IsZero() || at.Unix() == 0 {
		return ""
	}
	return duration.HumanDuration(now.Sub(at))
}

// Until returns the duration until a time, or "now" if it has passed.
func Until(now, at time.Time) string {
	if !at.After(now) {
		return "now"
	}
	return duration.HumanDuration(at.Sub(now))
}

// Clock returns a time in UTC to the second (empty for no time).
func Clock(at time.Time) string {
	if at.IsZero() || at.Unix() == 0 {
		return ""
	}
	return at.UTC().Format("2006-01-02 15:04:05 UTC")
}

// Plural returns a number of any integer type and a noun.
func Plural(n any, noun string) string {
	text := Grouped(n) + " " + noun
	switch {
	case strings.HasPrefix(text, "1 "):
	case strings.HasSuffix(noun, "ch"):
		text += "es"
	default:
		text += "s"
	}
	return text
}

// Grouped formats an integer of any type with a comma between thousands.
func Grouped(n any) string {
	digits := fmt.Sprint(n)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}
