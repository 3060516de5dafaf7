package rule

import (
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
	"strings"

	celast "github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/types"
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

// pattern is a regular expression of known size.
type pattern struct {
	text string
	size int
}

// literal returns the pattern of a call of matches. It must be a literal, because a server could choose any other.
func literal(e celast.Expr) (pattern, error) {
	text, isText := types.String(""), false
	if e.Kind() == celast.LiteralKind {
		text, isText = e.AsLiteral().(types.String)
	}
	if !isText {
		return pattern{}, errLiteral
	}
	return parse(string(text))
}

// parse checks the size of a pattern before anything compiles it.
func parse(text string) (pattern, error) {
	size := unicodeGroup * strings.Count(strings.ToLower(text), `\p`)
	switch {
	case size > maxPattern:
		return pattern{}, errPatterns
	case caseless.MatchString(text) && beyondASCII.MatchString(text) && strings.Contains(text, "-"):
		return pattern{}, errRange
	}
	parsed, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		return pattern{}, errors.New(strings.TrimPrefix(err.Error(), "error parsing regexp: "))
	}
	return pattern{text, size + instructions(parsed)}, nil
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
