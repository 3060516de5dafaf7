// Package printer prints for people and for programs, as kubectl does.
package printer

import (
	"encoding/json"
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
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/mattn/go-isatty"
	"github.com/spf13/pflag"
	"golang.org/x/term"
	"sigs.k8s.io/yaml"
)

// Options are how to print.
type Options struct {
	// Format is table, wide, json, yaml or name.
	Format string
	// NoHeaders leaves the first line of a table out.
	NoHeaders bool
}

// Formats are the values of Format.
func Formats() []string { return []string{"table", "wide", "json", "yaml", "name"} }

// BindFlags adds the flags of the options.
func (o *Options) BindFlags(fs *pflag.FlagSet) {
	fs.StringVarP(&o.Format, "output", "o", "table", "table, wide, json, yaml or name")
	fs.BoolVar(&o.NoHeaders, "no-headers", false, "print tables without their first line")
}

// Validate checks the format.
func (o *Options) Validate() error {
	if slices.Contains(Formats(), o.Format) {
		return nil
	}
	return fmt.Errorf("--output: %q is not one of %s", o.Format, strings.Join(Formats(), ", "))
}

// Printer prints. It is safe for concurrent use by lines.
type Printer struct {
	options Options
	out     io.Writer
	colour  bool
	mu      sync.Mutex
}

// New returns a printer; colours are used on a terminal unless NO_COLOR is set
// (no-color.org).
func New(out io.Writer, o Options) *Printer {
	return &Printer{options: o, out: out, colour: Terminal(out) && os.Getenv("NO_COLOR") == ""}
}

// Terminal reports whether w is one.
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

// Textf prints a text. Every argument is made Printable; a Cell keeps its colour.
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

// Row is one item of a listing.
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

// tableRows is how many rows of a table are held; columns never get narrower
// from one part to the next.
const tableRows = 1000

// List prints items. For programs they are printed one by one as they come; a
// table is printed when all are known, or in parts if it is long. It returns how many there were.
func (p *Printer) List(columns []Column, rows iter.Seq2[Row, error]) (n int, err error) {
	switch p.options.Format {
	case "json", "yaml":
		return p.stream(rows)
	case "name":
		for row, err := range rows {
			if err != nil {
				return n, err
			}
			n++
			p.Linef("%s", row.Name)
		}
		return n, nil
	}
	t := table{columns: slices.Clone(columns), room: p.Width(), wide: p.options.Format == "wide", headers: !p.options.NoHeaders, colour: p.colour}
	for row, err := range rows {
		if err != nil {
			return n, err
		}
		n++
		if t.rows = append(t.rows, row.Cells); len(t.rows) == tableRows {
			t.print(p.out)
		}
	}
	if len(t.rows) > 0 {
		t.print(p.out)
	}
	return n, nil
}

// stream prints {"items": […]} without holding all items.
func (p *Printer) stream(rows iter.Seq2[Row, error]) (n int, err error) {
	begin, before, end := "{\"items\": [", "\n  ", "\n]}\n"
	if p.options.Format == "yaml" {
		begin, before, end = "items:\n", "- ", ""
	}
	fmt.Fprint(p.out, begin)
	for row, err := range rows {
		if err != nil {
			return n, err
		}
		text, err := p.encode(row.Object)
		if err != nil {
			return n, err
		}
		if n > 0 && p.options.Format == "json" {
			fmt.Fprint(p.out, ",")
		}
		n++
		fmt.Fprint(p.out, before, strings.ReplaceAll(strings.TrimRight(text, "\n"), "\n", "\n  "))
		if p.options.Format == "yaml" {
			fmt.Fprintln(p.out)
		}
	}
	fmt.Fprint(p.out, end)
	return n, nil
}

// Object prints one object for programs.
func (p *Printer) Object(name string, object any) error {
	if p.options.Format == "name" {
		p.Linef("%s", name)
		return nil
	}
	text, err := p.encode(object)
	if err != nil {
		return err
	}
	fmt.Fprintln(p.out, strings.TrimRight(text, "\n"))
	return nil
}

func (p *Printer) encode(object any) (string, error) {
	text, err := json.MarshalIndent(object, "", "  ")
	if err != nil || p.options.Format != "yaml" {
		return escape(string(text), jsonPair), err
	}
	if strings.ContainsFunc(string(text), unsafe) {
		return escape(string(text), yamlLong), nil // YAML would not quote it; JSON is YAML
	}
	text, err = yaml.Marshal(object)
	return string(text), err
}

// JSON encodes an object on one line.
func JSON(object any) (string, error) {
	text, err := json.Marshal(object)
	return escape(string(text), jsonPair), err
}

// unsafe reports whether a character is a control character, changes the
// direction of text or is not seen.
func unsafe(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }

// escape writes the unsafe characters of a JSON text, which stand within its
// strings only, as escape sequences: what tenants and servers choose must not
// steer a terminal. Long writes one beyond 16 bits.
func escape(text string, long func(rune) string) string {
	var b strings.Builder
	for _, r := range text {
		switch {
		case !unsafe(r):
			b.WriteRune(r)
		case r > 0xFFFF:
			b.WriteString(long(r))
		default:
			fmt.Fprintf(&b, "\\u%04x", r)
		}
	}
	return b.String()
}

func jsonPair(r rune) string {
	high, low := utf16.EncodeRune(r)
	return fmt.Sprintf("\\u%04x\\u%04x", high, low)
}

func yamlLong(r rune) string { return fmt.Sprintf("\\U%08x", r) }

// Width returns how many columns the terminal has: $COLUMNS, if that is set, or
// what the terminal reports; 0 where there is none.
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

// Wrap breaks a text at spaces into lines of at most width characters, where it
// has any.
func Wrap(text string, width int) (lines []string) {
	line := ""
	for word := range strings.FieldsSeq(Printable(text)) {
		if line != "" && utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > width {
			lines, line = append(lines, line), ""
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	return append(lines, line)
}

// Fields prints names and values of one object for people. A value that is too
// long for the terminal goes on below itself.
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
		name := f.Name + ":"
		if f.Value.Text == "" {
			continue
		}
		for _, line := range Wrap(f.Value.Text, room) {
			p.Linef("%-*s  %s", width+1, name, In(f.Value.Colour, line))
			name = ""
		}
	}
}

// Field of one object.
type Field struct {
	// Name and value; one without a value is not printed.
	Name  string
	Value Cell
}
