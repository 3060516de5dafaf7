package printer

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/pmezard/go-difflib/difflib"
)

const (
	// contextLines is the number of equal lines that a difference shows before and after a change.
	contextLines = 3
	// maxCompared is the maximum number of lines between the first and the last change, because a comparison takes
	// time that grows with its square.
	maxCompared = 2000
)

// Difference returns the unified diff of two contents with those names, without control characters. It only gives
// the sizes of binary contents, and the place of very many changes.
func Difference(from, to []byte, names [2]string) string {
	if !utf8.Valid(from) || !utf8.Valid(to) {
		return fmt.Sprintf("Binary contents: %s has %s, %s has %s.\n", names[0], Plural(len(from), "byte"), names[1],
			Plural(len(to), "byte"))
	}
	a, b := difflib.SplitLines(string(from)), difflib.SplitLines(string(to))
	start, equal := 0, 0
	for start < min(len(a), len(b)) && a[start] == b[start] {
		start++
	}
	for equal < min(len(a), len(b))-start && a[len(a)-1-equal] == b[len(b)-1-equal] {
		equal++
	}
	start, equal = max(0, start-contextLines), max(0, equal-contextLines)
	a, b = a[start:len(a)-equal], b[start:len(b)-equal]
	if len(a) > maxCompared || len(b) > maxCompared {
		return fmt.Sprintf("There are too many changes to show, in lines %d to %d of %s and lines %d to %d of %s.\n",
			start+1, start+len(a), names[0], start+1, start+len(b), names[1])
	}
	var text strings.Builder
	fmt.Fprintf(&text, "--- %s\n+++ %s\n", names[0], names[1])
	for _, group := range difflib.NewMatcher(a, b).GetGroupedOpCodes(contextLines) {
		first, last := group[0], group[len(group)-1]
		fmt.Fprintf(&text, "@@ -%d,%d +%d,%d @@\n", start+first.I1+1, last.I2-first.I1, start+first.J1+1, last.J2-first.J1)
		for _, code := range group {
			if code.Tag == 'e' {
				writeLines(&text, ' ', a[code.I1:code.I2])
				continue
			}
			writeLines(&text, '-', a[code.I1:code.I2])
			writeLines(&text, '+', b[code.J1:code.J2])
		}
	}
	return Escaped(text.String())
}

// Short returns the beginning of a digest, which is enough to name it.
func Short(digest string) string { return digest[:min(12, len(digest))] }

func writeLines(text *strings.Builder, with byte, lines []string) {
	for _, line := range lines {
		text.WriteByte(with)
		text.WriteString(strings.TrimSuffix(line, "\n") + "\n")
	}
}
