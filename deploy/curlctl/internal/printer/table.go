package printer

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/kv8s/curl-me-that/proto/process"
)

// Table names the columns of a list, separated by "|".
type Table struct {
	// Columns of every table. Only -o wide adds Wide.
	Columns, Wide string
	// Drop lists the columns that a narrow terminal hides, in this order.
	Drop string
	// Wrap is the column whose long text continues on the next line. Other columns are cut.
	Wrap string
}

// column of a table.
type column struct {
	name        string
	wide, wraps bool
	// drop is the position in Table.Drop, from 1 (0: never hidden).
	drop int
}

func (t Table) columns() (all []column) {
	drop := strings.Split(t.Drop, "|")
	for _, part := range []struct {
		names string
		wide  bool
	}{{t.Columns, false}, {t.Wide, true}} {
		if part.names == "" {
			continue
		}
		for name := range strings.SplitSeq(part.names, "|") {
			all = append(all, column{name: name, wide: part.wide, wraps: name == t.Wrap, drop: slices.Index(drop, name) + 1})
		}
	}
	return all
}

// table aligns columns by the width of their text without escape sequences.
type table struct {
	p             *Printer
	columns       []column
	rows          [][]Cell
	wide, headers bool
	// room is the width of the terminal (0: unlimited).
	room   int
	widths []int
}

const (
	// minWidth is the width to which a column is cut at most.
	minWidth = 4
	// gap between columns, as in kubectl.
	gap = 3
)

func (t *table) add(row Row) error {
	if t.rows = append(t.rows, row.Cells); len(t.rows) == tableRows {
		t.print()
	}
	return nil
}

func (t *table) end() {
	if len(t.rows) > 0 {
		t.print()
	}
}

// fit hides columns until the rest fits into the room. If that is not enough, it cuts the widest columns.
func (t *table) fit() {
	for t.room > 0 && !t.wide {
		total, first, widest := -gap, -1, 0
		for i, c := range t.columns {
			if c.wide {
				continue
			}
			total += t.widths[i] + gap
			if c.drop > 0 && (first < 0 || c.drop < t.columns[first].drop) {
				first = i
			}
			if t.columns[widest].wide || t.widths[i] > t.widths[widest] {
				widest = i
			}
		}
		switch {
		case total <= t.room:
			return
		case first >= 0:
			t.columns[first].wide = true
		case t.widths[widest] <= minWidth:
			return
		default:
			t.widths[widest]--
		}
	}
}

func (t *table) print() {
	rows := t.rows
	if t.headers {
		header := make([]Cell, len(t.columns))
		for i, c := range t.columns {
			header[i] = Cell{Text: c.name}
		}
		rows = append([][]Cell{header}, rows...)
		t.headers = false
	}
	if t.widths == nil {
		t.widths = make([]int, len(t.columns))
	}
	for _, row := range rows {
		for i, cell := range row {
			t.widths[i] = max(t.widths[i], 1, cell.width())
		}
	}
	t.fit()
	var text bytes.Buffer
	for _, row := range rows {
		t.printRow(&text, row)
	}
	_, _ = t.p.out.Write(text.Bytes())
	t.rows = t.rows[:0]
}

func (t *table) printRow(out io.Writer, row []Cell) {
	var line strings.Builder
	var below []Cell
	column, pad, indent := 0, 0, 0
	for i, cell := range row {
		if t.columns[i].wide && !t.wide {
			continue
		}
		if cell.Text == "" {
			cell.Text = "-"
		}
		first := cell.cut(t.widths[i])
		column += pad
		if t.columns[i].wraps {
			lines := cell.lines(t.widths[i])
			first, below, indent = lines[0], lines[1:], column
		}
		line.WriteString(strings.Repeat(" ", pad))
		line.WriteString(first.paint(t.p.colour))
		width := first.width()
		column, pad = column+width, t.widths[i]-width+gap
	}
	fmt.Fprintln(out, line.String())
	for _, cell := range below {
		fmt.Fprintln(out, strings.Repeat(" ", indent)+cell.paint(t.p.colour))
	}
}

func (c Cell) width() int { return utf8.RuneCountInString(Printable(c.Text)) }

// cut shortens a cell to a width.
func (c Cell) cut(width int) Cell {
	if text := Printable(c.Text); utf8.RuneCountInString(text) > width {
		c.Text = string([]rune(text)[:width-1]) + "…"
	}
	return c
}

// lines wraps a cell between words, and cuts longer words.
func (c Cell) lines(width int) []Cell {
	var lines []Cell
	for _, text := range Wrap(c.Text, width) {
		lines = append(lines, Cell{Text: text, Colour: c.Colour}.cut(width))
	}
	return lines
}

// Wrap breaks a text at spaces into lines of at most width characters.
func Wrap(text string, width int) []string {
	words := strings.Join(strings.Fields(Printable(text)), " ")
	return strings.Split(process.Wrap(words, width, ""), "\n")
}

// Colour of a text on a terminal (ECMA-48 SGR, 0: none).
type Colour int

// The colours.
const (
	Red    Colour = 31
	Green  Colour = 32
	Yellow Colour = 33
	Cyan   Colour = 36
	Grey   Colour = 90
)

// Cell is a text in a colour.
type Cell struct {
	Text   string
	Colour Colour
}

// In returns a cell in a colour.
func In(c Colour, text string) Cell { return Cell{Text: text, Colour: c} }

// Cells converts texts, numbers and cells to cells.
func Cells(values ...any) []Cell {
	cells := make([]Cell, len(values))
	for i, value := range values {
		cells[i] = cellOf(value)
	}
	return cells
}

func cellOf(value any) Cell {
	switch value := value.(type) {
	case Cell:
		return value
	case string:
		return Cell{Text: value}
	}
	return Cell{Text: fmt.Sprint(value)}
}

func (c Cell) paint(colour bool) string {
	if !colour || c.Colour == 0 || c.Text == "" {
		return Printable(c.Text)
	}
	return "\x1b[" + strconv.Itoa(int(c.Colour)) + "m" + Printable(c.Text) + "\x1b[0m"
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

// Plural returns a number and a noun.
func Plural(n int, noun string) string {
	text := Grouped(n) + " " + noun
	switch {
	case n == 1:
	case strings.HasSuffix(noun, "ch"):
		text += "es"
	default:
		text += "s"
	}
	return text
}

// Grouped formats a number with a comma between thousands.
func Grouped(n int) string {
	digits := strconv.Itoa(n)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}
