package printer

import (
	"strconv"
	"strings"
)

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

// Grouped writes a number with a comma behind thousands.
func Grouped(n int) string {
	digits := strconv.Itoa(n)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}
