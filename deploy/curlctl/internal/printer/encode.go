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
		return escape(string(text), yamlLong), nil // yaml.Marshal would not escape it, and JSON is valid YAML
	}
	text, err = yaml.Marshal(object)
	return string(text), err
}

// JSON encodes an object on one line.
func JSON(object any) (string, error) {
	text, err := json.Marshal(object)
	return Escaped(string(text)), err
}

// Escaped replaces control and invisible characters with JSON escape sequences, so that tenants and servers
// cannot hide text.
func Escaped(text string) string { return escape(text, jsonPair) }

// unsafe reports whether a character is invisible, a control character, or changes the direction of text.
func unsafe(r rune) bool { return r != '\n' && r != '\t' && !unicode.IsPrint(r) }

// escape replaces unsafe characters with escape sequences. long returns the one of a character beyond 16 bits.
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
