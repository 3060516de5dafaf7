package rule_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/kv8s/curl-me-that/proto/rule"
)

// nested wraps a part in n pairs of brackets, or in as many as fit if n is 0.
func nested(n int, opening, part, closing string) string {
	if n == 0 {
		n = min(98, (rule.MaxLength-len(part))/(len(opening)+len(closing)))
	}
	return strings.Repeat(opening, n) + part + strings.Repeat(closing, n)
}

// slowToCompile are expressions with large types, many overloads, many errors or large patterns.
func slowToCompile() (all []string) {
	for _, element := range []string{
		"{v%[1]d:v%[1]d}", "{'a':v%[1]d,'b':v%[1]d}", "v%[1]d,v%[1]d", "true?v%[1]d:v%[1]d", "[v%[1]d,v%[1]d]",
		"{'a':{'a':v%[1]d},'b':{'a':v%[1]d}}", "[[v%[1]d]][0]", "type(v%[1]d)",
	} {
		for _, depth := range []int{7, 20} { // within and beyond the limit
			text := "true || [1].all(v0,"
			for n := range depth {
				text += fmt.Sprintf("["+element+"].all(v%[2]d,", n, n+1)
			}
			all = append(all, text+"true"+strings.Repeat(")", depth+1))
		}
	}
	list := nested(78, "[", "x", "]")
	all = append(all, "[1]"+strings.Repeat(".map(x,"+list+")", 6), "[1]"+strings.Repeat(".map(x,type(x))", 67),
		"[1]"+strings.Repeat(".map(x,[[x]])", 5), "[1]"+strings.Repeat(".map(x,{'a':x})", 6))
	for _, part := range []string{
		"json in json", "1==json", "1+''", "json+json", "[]==[]", "x", "f(1)", "json<json", "has(json.a)", "size(json)",
		"[].map(x,x)", "google.protobuf.Value{}==1", "type(1)==int", "timestamp(0)==duration('1s')", "a.b.c.d", "true?1:''",
		"certs(body)==certs(json)", "now<now+now",
	} {
		all = append(all, chain(part, "||"), chain(part, "+"), chain(part, "=="),
			"["+strings.TrimSuffix(chain(part, ","), ","+part)+"]")
	}
	for _, pair := range [][2]string{
		{"(", ")"},
		{"[", "]"},
		{"{1:", "}"},
		{"type(", ")"},
		{"dyn(", ")"},
		{"(true?", ":1)"},
		{"[1].map(x,", ")"},
		{"!", ""},
		{"json.map(x,", ")"},
		{"[dyn(", ")][0]"},
		{"-(", ")"},
		{"string(", ")"},
		{"has(json.a[", "].b)"},
		{"(1+", "+'')"},
	} {
		all = append(all, nested(0, pair[0], "1", pair[1]), strings.Repeat(pair[0], rule.MaxLength/len(pair[0])))
	}
	for _, pattern := range []string{
		"(" + strings.Repeat("a?", 490) + "){1000}", "(" + strings.Repeat("a|b", 300) + "){2}",
		"[" + strings.Repeat(`\\pL`, 200) + "]",
		"(?i)[" + strings.Repeat("B-\U0001e942", 300) + "]", "(?i)" + strings.Repeat(`[B-\\x{1e942}]`, 60),
		strings.Repeat("(a{3}){3}", 90),
		"(?i)" + strings.Repeat(`\\PL`, 20), "^(" + strings.Repeat("ab?|", 240) + ")$", strings.Repeat("(", 300),
		nested(0, "(?:", "a", ")*"),
	} {
		all = append(all, "''.matches('"+pattern+"')")
	}
	return append(all, chain("''.matches('(a?b?){300}')", "||"))
}

func TestCompilingIsFast(t *testing.T) {
	for _, text := range slowToCompile() {
		compiles(t, text)
	}
}

// tooLarge is a body that is not evaluated.
var tooLarge = make([]byte, rule.MaxBody+1)

// compiles checks that a rule, a selection and a program compile within the limit.
func compiles(t *testing.T, text string) {
	t.Helper()
	for name, compile := range map[string]func(text string){
		"rule":      func(text string) { rule.Mistake(text, true) },
		"selection": func(text string) { rule.Mistake(text, false) },
		"program": func(text string) {
			new(rule.Evaluator).Evaluate(t.Context(), "hostile", rule.Set{Select: text}, tooLarge, 0)
		},
	} {
		took := quickest(longestCompile, func(try int) { compile(text + strings.Repeat(" ", try)) }) // not cached
		if took > longestCompile {
			t.Errorf("%s %.80s took %s", name, text, took)
		}
	}
}

// shapes combine one or two expressions.
var shapes = []string{
	"[%s]", "{'a':%s}", "type(%s)", "(%s)", "!%s", "size(%s)", "string(%s)", "duration(%s)", "double(%s)", "int(%s)",
	"dyn(%s)", "%s.a", "%s[0]", "has(%s.a)", "bytes(%s)", "timestamp(%s)", "-%s", "%[1]s+%[1]s", "%[1]s||%[1]s",
	"[%[1]s,%[1]s]",
	"%[1]s==%[1]s", "%s.matches('(a|b?)+c')", "''.matches('(%s){9}')", "%[1]s.map(x,%[2]s)", "%[1]s.all(x,%[2]s)",
	"%[1]s.filter(x,%[2]s)", "%[1]s+%[2]s", "%[1]s||%[2]s", "%[1]s&&%[2]s", "%[1]s in %[2]s", "%[1]s==%[2]s",
	"%[1]s<%[2]s",
	"%[1]s?%[2]s:%[1]s", "{%[1]s:%[2]s}", "%[1]s.contains(%[2]s)", "body", "json", "x", "1", "'a'", "[1]", "heldSize",
	"now", "certs(%s)", "certs(body)[0]",
}

// build builds an expression from shapes in postfix order.
func build(program []byte) string {
	text, before := "1", "x"
	for _, b := range program {
		shape := shapes[int(b)%len(shapes)]
		switch next := fmt.Sprintf(shape+"%.0[1]s%.0[2]s", text, before); {
		case !strings.Contains(shape, "%"):
			text, before = shape, text
		case len(next) > rule.MaxLength:
			return text
		default:
			text = next
		}
	}
	return text
}

// FuzzLimits searches for an expression and a body that take too much CPU.
func FuzzLimits(f *testing.F) {
	var bodies []string
	for _, body := range hostileBodies() {
		bodies = append(bodies, body)
	}
	// The tests above check all slow texts. The program counts if the text is empty.
	for i, text := range slowToCompile()[:40] {
		f.Add("", []byte(text)[:i], bodies[i%len(bodies)])
	}
	f.Add(hostileExpressions()[0], []byte{}, bodies[0])
	f.Fuzz(func(t *testing.T, text string, program []byte, body string) {
		if text == "" {
			text = build(program)
		}
		if len(text) > 4*rule.MaxLength || len(body) > rule.MaxBody {
			t.Skip()
		}
		compiles(t, text)
		e := new(rule.Evaluator)
		set := rule.Set{Expect: []string{text, text, text, text, text, text, text, text}, Select: text}
		e.Evaluate(t.Context(), "hostile", set, []byte{}, 1) // compiles
		took := quickest(longest, func(int) { e.Evaluate(t.Context(), "hostile", set, []byte(body), 1) })
		if took > longest {
			t.Errorf("%.80s took %s", text, took)
		}
	})
}
