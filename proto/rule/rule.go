// Package rule evaluates the expressions of curl-expect and curl-select on response bodies. They are
// written in CEL with its standard functions only.
//
// Tenants write expressions and strangers write bodies, so an evaluation has bounds that hold for
// every pair of them: see Evaluator.
package rule

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/google/cel-go/cel"
	celast "github.com/google/cel-go/common/ast"

	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
)

const (
	// MaxRules is the maximum number of rules of a key.
	MaxRules = 8
	// MaxLength is the maximum length of an expression in characters.
	MaxLength = 1024
	// MaxAnnotation is the maximum length of an annotation with expressions in bytes.
	MaxAnnotation = 8 << 10
	// maxSyntax is the maximum nesting of an expression.
	maxSyntax = 100
	// maxMistake is the maximum length of a sentence about a mistake.
	maxMistake = 200
)

// Set holds the expressions of one key.
type Set struct {
	// Expect has the rules; each must be true.
	Expect []string
	// Select gives the value of the key; empty: the body.
	Select string
}

// Empty reports whether there are no expressions.
func (s Set) Empty() bool { return len(s.Expect) == 0 && s.Select == "" }

// Digest identifies the expressions; it is empty without any.
func (s Set) Digest() string {
	if s.Empty() {
		return ""
	}
	sum := sha256.New()
	for _, text := range append([]string{s.Select}, s.Expect...) {
		fmt.Fprintf(sum, "%d %s", len(text), text)
	}
	return hex.EncodeToString(sum.Sum(nil)[:16])
}

// Of returns the expressions of a want.
func Of(w *v1.Want) Set { return Set{Expect: w.GetExpect(), Select: w.GetSelect()} }

// mistakes remembers the outcome for expressions, because annotations are parsed at each change of an
// object.
var mistakes = struct { //nolint:gochecknoglobals // a cache
	sync.Mutex

	of     map[expression]string
	length int
}{of: map[expression]string{}}

type expression struct {
	text   string
	isRule bool
}

// Mistake says why text is not a usable expression, or is empty. A rule has to give a boolean.
func Mistake(text string, isRule bool) string {
	mistakes.Lock()
	defer mistakes.Unlock()
	key := expression{text, isRule}
	mistake, known := mistakes.of[key]
	if known {
		return mistake
	}
	mistake = mistakeIn(key)
	if mistakes.length += len(text); mistakes.length > maxCached {
		clear(mistakes.of)
		mistakes.length = len(text)
	}
	key.text = strings.Clone(text) // not all of the annotation
	mistakes.of[key] = mistake
	return mistake
}

func mistakeIn(e expression) string {
	_, err := compile(e.text, e.isRule)
	if err == nil {
		return ""
	}
	line := []rune(strings.Join(strings.Fields(err.Error()), " "))
	if len(line) > maxMistake {
		line = append(line[:maxMistake-1], '…')
	}
	return string(line)
}

// environment declares the variables. It takes a megabyte, so only processes that meet an expression
// make it.
var environment = sync.OnceValues(func() (*cel.Env, error) { //nolint:gochecknoglobals // immutable
	return cel.NewEnv(
		cel.Variable("body", cel.DynType), cel.Variable("json", cel.DynType), cel.Variable("heldSize", cel.IntType),
		cel.ParserRecursionLimit(maxSyntax), cel.ParserExpressionSizeLimit(MaxLength))
})

// compile parses and checks an expression.
func compile(text string, isRule bool) (*cel.Ast, error) {
	if n := len([]rune(text)); n > MaxLength {
		return nil, fmt.Errorf("it has %d characters, more than %d", n, MaxLength)
	}
	env, err := environment()
	if err != nil {
		return nil, err
	}
	ast, issues := env.Parse(text)
	if issues.Err() == nil {
		if at, found := variableMapKey(ast); found {
			return nil, errors.New("the key of a map must be a literal" + at)
		}
		ast, issues = env.Check(ast)
	}
	if issues.Err() != nil {
		first := issues.Errors()[0]
		message, _ := strings.CutPrefix(first.Message, "Syntax error: ")
		message = simplified(message)
		if first.Location.Line() < 0 { // the whole is refused
			return nil, errors.New(message)
		}
		return nil, errors.New(message + column(first.Location.Column()))
	}
	if output := ast.OutputType(); isRule && !output.IsExactType(cel.BoolType) && !output.IsExactType(cel.DynType) {
		native := ast.NativeRep()
		return nil, errors.New("expected a boolean" +
			column(native.SourceInfo().GetStartLocation(native.Expr().ID()).Column()))
	}
	return ast, nil
}

// variableMapKey returns the column of a map key that is no literal. With keys that are loop variables,
// each nested loop would double the size of a type, and so the time to check it.
func variableMapKey(parsed *cel.Ast) (at string, found bool) {
	native := parsed.NativeRep()
	celast.PreOrderVisit(native.Expr(), celast.NewExprVisitor(func(e celast.Expr) {
		if found || e.Kind() != celast.MapKind {
			return
		}
		for _, entry := range e.AsMap().Entries() {
			if key := entry.AsMapEntry().Key(); key.Kind() != celast.LiteralKind {
				at, found = column(native.SourceInfo().GetStartLocation(key.ID()).Column()), true
				return
			}
		}
	}))
	return at, found
}

func column(fromZero int) string { return ", column " + strconv.Itoa(fromZero+1) }
