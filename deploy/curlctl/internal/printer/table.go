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
)

// Colour of a text on a terminal (ECMA-48 SGR); 0: none.
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
	// Text of any origin; control characters in it are not printed.
	Text string
	// Colour of the text.
	Colour Colour
}

// Text returns a cell without colour.
func Text(text string) Cell { return Cell{Text: text} }

// Number returns a cell with a number.
func Number[T int | int32 | int64 | uint32 | uint64](n T) Cell {
	return Cell{Text: strconv.FormatInt(int64(n), 10)}
}

// In returns a cell in a colour.
func In(c Colour, text string) Cell { return Cell{Text: text, Colour: c} }

func (c Cell) paint(colour bool) string {
	if !colour || c.Colour == 0 || c.Text == "" {
		return Printable(c.Text)
	}
	return "\x1b[" + strconv.Itoa(int(c.Colour)) + "m" + Printable(c.Text) + "\x1b[0m"
}

// Printable returns text without control characters: what tenants and servers
// choose must not steer the terminal.
func Printable(text string) string {
	return strings.Map(func(r rune) rune {
		// Most are of ASCII, which is looked at first.
		if ' ' <= r && r <= '~' || unicode.IsPrint(r) {
			return r
		}
		return unicode.ReplacementChar
	}, text)
}

// Column of a table.
type Column struct {
	// Name in the first line.
	Name string
	// Wide: only -o wide shows it.
	Wide bool
	// Worth orders the columns that a narrow terminal has no room for: of those
	// above 0 the least goes first. Those with 0 stay.
	Worth int
	// Wraps: what is too long for the terminal goes on below itself. Others are cut.
	Wraps bool
}

// Wrapping lets a column wrap, which is the last that a table prints.
func Wrapping(columns []Column, name string) []Column {
	for i := range columns {
		columns[i].Wraps = columns[i].Name == name
	}
	return columns
}

// Dropping gives columns their worth: the first name goes first.
func Dropping(columns []Column, names ...string) []Column {
	for i := range columns {
		columns[i].Worth = slices.Index(names, columns[i].Name) + 1
	}
	return columns
}

// Columns returns columns by name; those behind an empty one are wide.
func Columns(names ...string) []Column {
	var columns []Column
	wide := false
	for _, name := range names {
		if name == "" {
			wide = true
			continue
		}
		columns = append(columns, Column{Name: name, Wide: wide})
	}
	return columns
}

// table aligns columns by the width of their text, which escape sequences must
// not count for.
type table struct {
	columns               []Column
	rows                  [][]Cell
	wide, headers, colour bool
	// room is the width of the terminal; 0: no bound.
	room   int
	widths []int
}

// leastCut is the width below which no column is cut.
const leastCut = 4

// fit hides columns until the rest fits into the room, and if none is left to
// hide, cuts the widest until another one is as wide.
func (t *table) fit() {
	for t.room > 0 && !t.wide {
		total, least, widest := -gap, -1, 0
		for i, c := range t.columns {
			if c.Wide {
				continue
			}
			total += t.widths[i] + gap
			if c.Worth > 0 && (least < 0 || c.Worth < t.columns[least].Worth) {
				least = i
			}
			if t.columns[widest].Wide || t.widths[i] > t.widths[widest] {
				widest = i
			}
		}
		switch {
		case total <= t.room:
			return
		case least >= 0:
			t.columns[least].Wide = true
		case t.widths[widest] <= leastCut:
			return
		default:
			t.widths[widest]--
		}
	}
}

// cut shortens a cell to a width.
func (c Cell) cut(width int) Cell {
	if text := Printable(c.Text); utf8.RuneCountInString(text) > width {
		c.Text = string([]rune(text)[:width-1]) + "…"
	}
	return c
}

// lines breaks a cell between words into lines of a width.
func (c Cell) lines(width int) []Cell {
	var lines []Cell
	for _, text := range Wrap(c.Text, width) {
		lines = append(lines, Cell{Text: text, Colour: c.Colour}.cut(width))
	}
	return lines
}

// gap between columns, as in kubectl.
const gap = 3

func (t *table) print(out io.Writer) {
	rows := t.rows
	if t.headers {
		header := make([]Cell, len(t.columns))
		for i, c := range t.columns {
			header[i] = Text(c.Name)
		}
		rows = append([][]Cell{header}, rows...)
		t.headers = false
	}
	if t.widths == nil {
		t.widths = make([]int, len(t.columns))
	}
	for _, row := range rows {
		for i, cell := range row {
			t.widths[i] = max(t.widths[i], 1, utf8.RuneCountInString(Printable(cell.Text)))
		}
	}
	t.fit()
	var text bytes.Buffer
	for _, row := range rows {
		t.printRow(&text, row)
	}
	_, _ = out.Write(text.Bytes())
	t.rows = t.rows[:0]
}

func (t *table) printRow(out io.Writer, row []Cell) {
	var line strings.Builder
	var below []Cell
	column, pad, indent := 0, 0, 0
	for i, cell := range row {
		if t.columns[i].Wide && !t.wide {
			continue
		}
		if cell.Text == "" {
			cell.Text = "-"
		}
		first := cell.cut(t.widths[i])
		column += pad
		if t.columns[i].Wraps {
			lines := cell.lines(t.widths[i])
			first, below, indent = lines[0], lines[1:], column
		}
		line.WriteString(strings.Repeat(" ", pad))
		line.WriteString(first.paint(t.colour))
		width := utf8.RuneCountInString(Printable(first.Text))
		column, pad = column+width, t.widths[i]-width+gap
	}
	fmt.Fprintln(out, line.String())
	for _, cell := range below {
		fmt.Fprintln(out, strings.Repeat(" ", indent)+cell.paint(t.colour))
	}
}

// Age returns how long ago a time was, as kubectl writes it; nothing for none.
func Age(now, at time.Time) string {
	if at.IsZero() || at.Unix() == 0 {
		return ""
	}
	return duration.HumanDuration(now.Sub(at))
}

// Until returns how far ahead a time is; "now" when it has passed.
func Until(now, at time.Time) string {
	if !at.After(now) {
		return "now"
	}
	return duration.HumanDuration(at.Sub(now))
}

// Clock returns a time in UTC to the second; nothing for none.
func Clock(at time.Time) string {
	if at.IsZero() || at.Unix() == 0 {
		return ""
	}
	return at.UTC().Format("2006-01-02 15:04:05 UTC")
}
