package printer

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf16"

	"sigs.k8s.io/yaml"
)

// stream prints {"items": […]} row by row.
type stream struct {
	p *Printer
	n int
}

func (s *stream) add(row Row) error {
	text, err := s.p.encode(row.Object)
	if err != nil {
		return err
	}
	text = strings.ReplaceAll(strings.TrimRight(text, "\n"), "\n", "\n  ")
	s.begin()
	switch {
	case s.p.options.Format == "yaml":
		text = "- " + text + "\n"
	case s.n > 0:
		text = ",\n  " + text
	default:
		text = "\n  " + text
	}
	s.n++
	fmt.Fprint(s.p.out, text)
	return nil
}

// begin prints the text before the first item.
func (s *stream) begin() {
	switch {
	case s.n > 0:
	case s.p.options.Format == "yaml":
		fmt.Fprint(s.p.out, "items:\n")
	default:
		fmt.Fprint(s.p.out, `{"items": [`)
	}
}

func (s *stream) end() {
	if s.n == 0 {
		s.begin()
	}
	if s.p.options.Format != "yaml" {
		fmt.Fprint(s.p.out, "\n]}\n")
	}
}

func (p *Printer) encode(object any) (string, error) {
	text, err := json.MarshalIndent(object, "", "  ")
	if err != nil || p.options.Format != "yaml" {
		return Escaped(string(text)), err
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
	return Escaped(string(text)), err
}

// Escaped writes control and invisible characters as escape sequences, as JSON does: tenants and servers
// must not hide text.
func Escaped(text string) string { return escape(text, jsonPair) }

// unsafe reports whether a character is a control character, changes the direction of
// text or is invisible.
func unsafe(r rune) bool { return r != '\n' && r != '\t' && !unicode.IsPrint(r) }

// escape writes unsafe characters as escape sequences. long writes one beyond 16 bits.
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
