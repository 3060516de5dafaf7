package printer

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"

	"k8s.io/apimachinery/pkg/util/duration"
)

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
