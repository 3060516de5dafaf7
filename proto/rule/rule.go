// Package rule evaluates the Expressions of curl-expect and curl-select on response bodies. They are
// written in CEL with its standard functions and certs.
//
// Tenants write Expressions and strangers write bodies, so an evaluation has bounds that hold for
// every pair of them: see Evaluator.
package rule

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"
	"sync"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common"
	celast "github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/overloads"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"

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
	// maxNested is the maximum number of lists, maps, loops and calls of type in an expression.
	maxNested = 24
	// maxCached is the maximum number of expressions in a cache.
	maxCached = 128
	// maxShown is the maximum length of an expression, or of a mistake in one, in a sentence.
	maxShown = 200
)

// Set holds the Expressions of one key.
type Set struct {
	// Expect has the rules. Each must be true.
	Expect []string
	// Select gives the value of the key (empty: the body).
	Select string
}

// Empty reports whether there are no expressions.
func (s Set) Empty() bool { return len(s.Expect) == 0 && s.Select == "" }

// Hash identifies the Expressions. It is empty without any.
func (s Set) Hash() string {
	if s.Empty() {
		return ""
	}
	sum := sha256.New()
	for _, text := range append([]string{s.Select}, s.Expect...) {
		fmt.Fprintf(sum, "%d %s", len(text), text)
	}
	return hex.EncodeToString(sum.Sum(nil)[:16])
}

// SetOf returns the Expressions of a want.
func SetOf(w *v1.Want) Set { return Set{Expect: w.GetExpect(), Select: w.GetSelect()} }

// Timed reports whether the outcome on a body may change with time. Such a body is never confirmed by a 304.
func (s Set) Timed() bool {
	return slices.ContainsFunc(s.expressions(), func(e Expression) bool { return strings.Contains(e.Text, "now") })
}

// expressions returns the rules, then the selection.
func (s Set) expressions() []Expression {
	var all []Expression
	for _, text := range s.Expect {
		all = append(all, Expression{text, true})
	}
	if s.Select != "" {
		all = append(all, Expression{s.Select, false})
	}
	return all
}

// Expression is a rule or a selection.
type Expression struct {
	Text   string
	IsRule bool
}

// mistakes caches the results of Mistake, because annotations are parsed at each change of an object.
var mistakes cache[string] //nolint:gochecknoglobals // a cache

// Mistake returns the reason why text is not a usable Expression, or "". A rule must give a boolean.
func Mistake(text string, isRule bool) string {
	return mistakes.get(Expression{text, isRule}, func(e Expression) string {
		if _, err := compile(e); err != nil {
			return Shortened(strings.Join(strings.Fields(err.Error()), " "))
		}
		return ""
	})
}

// cache holds one value per expression.
type cache[V any] struct {
	mu     sync.Mutex
	values map[Expression]V
}

// get finds a value without the lock, because that takes milliseconds. A new value replaces a random one, so
// that no namespace removes those of all others at once.
func (c *cache[V]) get(e Expression, find func(Expression) V) V {
	c.mu.Lock()
	found, known := c.values[e]
	c.mu.Unlock()
	if known {
		return found
	}
	found = find(e)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.values == nil {
		c.values = map[Expression]V{}
	}
	for other := range c.values {
		if len(c.values) < maxCached {
			break
		}
		delete(c.values, other)
	}
	e.Text = strings.Clone(e.Text) // so that the cache does not keep the whole annotation
	c.values[e] = found
	return found
}

// Shortened returns the beginning of a text, for a sentence.
func Shortened(text string) string {
	if runes := []rune(text); len(runes) > maxShown {
		return string(runes[:maxShown-1]) + "…"
	}
	return text
}

// environment declares the variables. It takes a megabyte, so it is created for the first expression.
var environment = sync.OnceValue(func() *cel.Env { //nolint:gochecknoglobals // immutable
	env, err := cel.NewEnv(
		cel.Variable("body", cel.DynType), cel.Variable("json", cel.DynType), cel.Variable("heldSize", cel.IntType),
		cel.Variable("now", cel.TimestampType), cel.Function(certsFunction, cel.Overload("certs_text",
			[]*cel.Type{cel.DynType}, cel.ListType(cel.MapType(cel.StringType, cel.DynType)))),
		cel.ParserRecursionLimit(maxSyntax), cel.ParserExpressionSizeLimit(MaxLength))
	if err != nil {
		panic(err) // the declarations above contradict each other
	}
	return env
})

// compile parses and checks an expression. It takes a few milliseconds at most.
func compile(e Expression) (ast *cel.Ast, err error) {
	defer func() {
		if recover() != nil { // as in cel-go#283 and #317: the expression of one tenant would end the watcher of all
			ast, err = nil, errors.New("it cannot be compiled")
		}
	}()
	ast, issues := environment().Parse(e.Text)
	if issues.Err() == nil {
		if err := limit(ast.NativeRep()); err != nil {
			return nil, err
		}
		ast, issues = environment().Check(ast)
	}
	if issues.Err() != nil {
		first := issues.Errors()[0]
		message := simplified(strings.TrimPrefix(first.Message, "Syntax error: "))
		if first.Location.Line() < 0 { // the whole expression is rejected
			return nil, errors.New(message)
		}
		return nil, mistakeAt(message, first.Location)
	}
	if output := ast.OutputType(); e.IsRule && !output.IsExactType(cel.BoolType) && !output.IsExactType(cel.DynType) {
		at := ast.NativeRep().SourceInfo().GetStartLocation(ast.NativeRep().Expr().ID())
		return nil, mistakeAt("expected a boolean", at)
	}
	return ast, nil
}

// limit rejects an expression that takes long to check or to run. Lists, maps, loops and type make types deeper,
// which the checker compares as text, so a thousand characters would take it a minute.
func limit(ast *celast.AST) error {
	nested, size := 0, 0
	for _, e := range celast.MatchDescendants(celast.NavigateAST(ast), celast.AllMatcher()) {
		switch e.Kind() { //nolint:exhaustive // others are neither deep nor slow
		case celast.ListKind, celast.MapKind, celast.ComprehensionKind:
			nested++
		case celast.CallKind:
			call := e.AsCall()
			switch call.FunctionName() {
			case overloads.TypeConvertType:
				nested++
			case overloads.Matches:
				if len(call.Args()) == 0 { // the checker rejects it
					continue
				}
				n, err := patternSize(call.Args()[len(call.Args())-1].AsLiteral()) // nil without a literal
				size += n
				if err == nil && size > maxPattern {
					err = errPatterns
				}
				if err != nil {
					return mistakeAt(err.Error(), ast.SourceInfo().GetStartLocation(e.ID()))
				}
			}
		}
	}
	if nested > maxNested {
		return fmt.Errorf("it has more than %d lists, maps and loops (a macro counts as up to 3)", maxNested)
	}
	return nil
}

func mistakeAt(message string, at common.Location) error {
	return fmt.Errorf("%s, column %d", message, at.Column()+1)
}

// words replaces messages of CEL by plain ones.
var words = [][2]string{
	{
		`^undeclared reference to '(all|exists|exists_one|filter|map)' \(in container.*`,
		"$1 takes a name and an expression, as in json.$1(x, x > 0)",
	},
	{
		`^undeclared reference to '(.*)' \(in container.*`,
		"$1 is unknown (use body, json, heldSize, now, certs and the standard functions of CEL)",
	},
	{
		`^found no matching overload for '(startsWith|endsWith|contains|matches)' applied to '.*'`,
		"$1 takes two texts; write it as in body.$1('…')",
	},
	{`^found no matching overload for '(size|certs)' applied to '(.*)'`, "'$1' does not take $2; write it as in $1(body)"},
	{`^found no matching overload for '_\?_:_' applied to '.*'`, "both results of '? :' must have the same type"},
	{
		`^found no matching overload for '_(.+)_' applied to '\((.*), (.*)\)'`,
		"'$1' does not take $2 and $3; convert one, as in int(…), double(…), string(…), timestamp(…) or duration('1h')",
	},
	{`^found no matching overload for '_?(.*?)_?' applied to '(?:dyn\.)?(.*)'`, "'$1' does not take $2"},
	{`^expression code point size exceeds limit: size: (.*), limit (.*)`, "it has $1 characters, more than $2"},
	{`.*'<EOF>'.*`, "the expression is incomplete"},
	{`^(?:mismatched|extraneous) input ('.*') expecting.*`, "$1 is not expected"},
	{`^no viable alternative at input ('.*')`, "$1 is not expected"},
	{`^token recognition error at: '(.*?) ?'$`, "'$1' is not expected"},
}

func simplified(message string) string {
	for _, w := range words {
		message = regexp.MustCompile(w[0]).ReplaceAllString(message, w[1])
	}
	return message
}

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
