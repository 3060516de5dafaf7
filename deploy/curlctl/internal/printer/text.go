package printer

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf16"

	"k8s.io/apimachinery/pkg/util/duration"
)

// item prints the next item of {"items": […]}, of which n were printed.
func (p *Printer) item(n int, object any) error {
	text, err := json.MarshalIndent(object, "  ", "  ")
	begin := ",\n  "
	if n == 0 {
		begin = "{\"items\": [\n  "
	}
	if err == nil {
		fmt.Fprint(p.out, begin+Escaped(string(text)))
	}
	return err
}

func (p *Printer) end(n int) {
	if n == 0 {
		fmt.Fprint(p.out, `{"items": [`)
	}
	fmt.Fprint(p.out, "\n]}\n")
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
