package rule

import (
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
	"strings"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
)

// maxPattern is the maximum size of all patterns of an expression in instructions, of about 100 bytes each. A
// group of Unicode counts as unicodeGroup, because parsing it takes as long.
const maxPattern, unicodeGroup = 2 << 10, 100

var (
	errPatterns = fmt.Errorf("the patterns of matches have more than %d instructions; use less repetition", maxPattern)
	errLiteral  = errors.New("the pattern of matches must be a string in quotes")
	// errRange: the parser would visit each character of the range.
	errRange = errors.New("a pattern of matches with (?i) has a range beyond ASCII")

	caseless    = regexp.MustCompile(`\(\?[a-zA-Z]*i`)
	beyondASCII = regexp.MustCompile(`[^\x00-\x7f]|\\x\{`)
)

// patternSize returns the number of instructions of a pattern before anything compiles it. It must be a literal,
// because a server could choose any other.
func patternSize(literal ref.Val) (int, error) {
	value, isText := literal.(types.String)
	if !isText {
		return 0, errLiteral
	}
	text := string(value)
	size := unicodeGroup * strings.Count(strings.ToLower(text), `\p`)
	switch {
	case size > maxPattern:
		return 0, errPatterns
	case caseless.MatchString(text) && beyondASCII.MatchString(text) && strings.Contains(text, "-"):
		return 0, errRange
	}
	parsed, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		return 0, errors.New(strings.TrimPrefix(err.Error(), "error parsing regexp: "))
	}
	return size + instructions(parsed), nil
}

// instructions estimates the number of instructions of a compiled pattern.
func instructions(re *syntax.Regexp) int {
	n := 2
	if re.Op == syntax.OpLiteral {
		n = len(re.Rune)
	}
	for _, sub := range re.Sub {
		n += instructions(sub)
	}
	if re.Op == syntax.OpRepeat {
		n *= max(1, re.Min, re.Max)
	}
	return n
}
