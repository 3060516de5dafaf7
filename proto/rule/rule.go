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
	"strings"
	"sync"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common"
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
	// maxCached is the maximum length of all expressions in a cache in bytes.
	maxCached = 64 << 10
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

type expression struct {
	text   string
	isRule bool
}

// mistakes remembers the outcome for expressions, because annotations are parsed at each change of an
// object.
var mistakes cache[string] //nolint:gochecknoglobals // a cache

// Mistake says why text is not a usable expression, or is empty. A rule has to give a boolean.
func Mistake(text string, isRule bool) string {
	return mistakes.get(expression{text, isRule}, mistakeIn)
}

// cache remembers one thing of each expression.
type cache[V any] struct {
	mu     sync.Mutex
	of     map[expression]V
	length int
}

func (c *cache[V]) get(e expression, find func(expression) V) V {
	c.mu.Lock()
	defer c.mu.Unlock()
	found, known := c.of[e]
	if known {
		return found
	}
	found = find(e)
	if c.length += len(e.text); c.of == nil || c.length > maxCached {
		c.of, c.length = map[expression]V{}, len(e.text)
	}
	e.text = strings.Clone(e.text) // not all of the annotation
	c.of[e] = found
	return found
}

func mistakeIn(e expression) string {
	_, err := compile(e)
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
func compile(e expression) (*cel.Ast, error) {
	if n := len([]rune(e.text)); n > MaxLength {
		return nil, fmt.Errorf("it has %d characters, more than %d", n, MaxLength)
	}
	env, err := environment()
	if err != nil {
		return nil, err
	}
	ast, issues := env.Parse(e.text)
	if issues.Err() == nil {
		if err := literalMapKeys(ast.NativeRep()); err != nil {
			return nil, err
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
		return nil, mistakeAt(message, first.Location)
	}
	if output := ast.OutputType(); e.isRule && !output.IsExactType(cel.BoolType) && !output.IsExactType(cel.DynType) {
		native := ast.NativeRep()
		return nil, mistakeAt("expected a boolean", native.SourceInfo().GetStartLocation(native.Expr().ID()))
	}
	return ast, nil
}

// literalMapKeys refuses other map keys. With keys that are loop variables, each nested loop would
// double the size of a type, and so the time to check it.
func literalMapKeys(ast *celast.AST) error {
	for _, m := range celast.MatchDescendants(celast.NavigateAST(ast), celast.KindMatcher(celast.MapKind)) {
		for _, entry := range m.AsMap().Entries() {
			if key := entry.AsMapEntry().Key(); key.Kind() != celast.LiteralKind {
				return mistakeAt("the key of a map must be a literal", ast.SourceInfo().GetStartLocation(key.ID()))
			}
		}
	}
	return nil
}

func mistakeAt(message string, at common.Location) error {
	return fmt.Errorf("%s, column %d", message, at.Column()+1)
}
