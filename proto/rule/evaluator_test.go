package rule_test

import (
	"context"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kv8s/curl-me-that/proto/budget"
	"github.com/kv8s/curl-me-that/proto/rule"
)

// evaluate returns the outcome of one rule.
func evaluate(body, text string, held int64) rule.Cause {
	o := new(rule.Evaluator).Evaluate(context.Background(), "team-a", rule.Set{Expect: []string{text}}, []byte(body), held)
	return o.Expressions[0].Cause
}

func TestRules(t *testing.T) {
	object := `{"rules":[1],"version":3,"big":9007199254740993,"ratio":0.5}`
	for _, c := range []struct {
		body, text string
		want       rule.Cause
	}{
		{object, `size(json.rules) > 0`, rule.Passed},
		{object, `json.version >= 3`, rule.Passed},
		{object, `json.version > 3`, rule.False},
		{object, `json.big == 9007199254740993`, rule.Passed},
		{object, `json.big == 9007199254740992`, rule.False},
		{object, `json.ratio < 1`, rule.Passed},
		{object, `json.rules`, rule.Inapplicable},
		{object, `json.other == 1`, rule.Inapplicable},
		{object, `has(json.other) || "version" in json`, rule.Passed},
		{object, `1 in json.rules && !(2 in json.rules)`, rule.Passed},
		{object, `json.rules.map(r, r + 1) == [2]`, rule.Passed},
		{object, `json != {} && body.matches("^[{].*[}]$")`, rule.Passed},
		{"<html>", `size(json.rules) > 0`, rule.NotJSON},
		{"{} {}", `json == {}`, rule.NotJSON},
		{"\xff", `json == {}`, rule.NotJSON},
		{"<html>", `size(json.rules) > 0 || body.contains("html")`, rule.Passed},
		{"-----BEGIN CERTIFICATE-----", `body.startsWith("-----BEGIN CERTIFICATE-----")`, rule.Passed},
		{"abc", `size(body) * 2 > heldSize`, rule.Passed},
		{"ab", `size(body) * 2 > heldSize`, rule.False},
		{"\xff\xfe", `body == b"\xff\xfe" && size(body) == 2`, rule.Passed},
		{"abc", `string(bytes(body)) + "d" == "abcd"`, rule.Passed},
		{strings.Repeat("x", rule.MaxBody+1), `true`, rule.TooLarge},
		{ca, `size(certs(body)) == 2 && certs(body).all(c, c.isCA && c.notAfter > now + duration("720h"))`, rule.Passed},
		{ca, `certs(body).exists(c, c.notBefore > now || c.notAfter < now + duration("87600h"))`, rule.False},
		{
			ca, `certs(body)[0].subject == "CN=curl-me-that,O=kv8s" && certs(body)[1].issuer == certs(body)[0].subject`,
			rule.Passed,
		},
		{ca, `certs(body)[0].sha256.matches("^[0-9a-f]{64}$") && !(certs(body)[0] in [])`, rule.Passed},
		{ca, `certs(json.ca) == []`, rule.NotJSON},
		{object, `certs(json.rules) == []`, rule.Inapplicable},
		{object, `certs(body) == [] && size(body) > 0`, rule.NotCertificates},
		{object, `certs(body) == [] || size(body) > 0`, rule.Passed},
		{"", `certs(body) == []`, rule.Passed},
	} {
		if got := evaluate(c.body, c.text, 5); got != c.want {
			t.Errorf("%s on %.40s is %s, not %s", c.text, c.body, got, c.want)
		}
	}
}

func TestALargeBodyPassesWithoutExpressions(t *testing.T) {
	_, cause := new(rule.Evaluator).Evaluate(t.Context(), "team-a", rule.Set{}, tooLarge, 0).Failed()
	if cause != rule.Passed {
		t.Errorf("the body is %s", cause)
	}
}

func TestSelections(t *testing.T) {
	e := new(rule.Evaluator)
	body := `{"data":{"b":[1,2.5,true,null],"a":"<é>"},"text":"plain"}`
	for text, want := range map[string]string{
		`json.data`:                   `{"a":"<é>","b":[1,2.5,true,null]}`,
		`json.text`:                   `plain`,
		`json.data.b.filter(x, x==1)`: `[1]`,
		`b"\xff"`:                     "\xff",
		`size(body)`:                  fmt.Sprint(len(body) - 1), // in characters
		`{1: 2u}`:                     `{"1":2}`,
		`[timestamp(0)]`:              `["1970-01-01T00:00:00Z"]`,
	} {
		o := e.Evaluate(t.Context(), "team-a", rule.Set{Select: text}, []byte(body), 0)
		if o.Expressions[0].Cause != rule.Passed || string(o.Selected) != want {
			t.Errorf("%s selects %v %q, not %q", text, o.Expressions, o.Selected, want)
		}
	}
	large := strings.Replace(body, "plain", strings.Repeat("x", rule.MaxBody*2/3), 1)
	for text, want := range map[string]rule.Cause{
		`json.other`:              rule.Inapplicable,
		`[text, text]`:            rule.TooLarge,
		`text + text`:             rule.TooLarge,
		`1.0 / 0.0`:               rule.Inapplicable,
		`duration("1s")`:          rule.Inapplicable,
		`{json.data: 1}`:          rule.Inapplicable,
		`{[1]: 1}`:                rule.Inapplicable,
		`{b"a": 1}`:               rule.Inapplicable,
		`[[text]].map(x, [x, x])`: rule.TooLarge,
	} {
		text = strings.ReplaceAll(text, "text", "json.text")
		o := e.Evaluate(t.Context(), "team-a", rule.Set{Select: text}, []byte(large), 0)
		if o.Expressions[0].Cause != want {
			t.Errorf("%s selects %v, not %v", text, o.Expressions, want)
		}
	}
}

func TestMistakes(t *testing.T) {
	for text, want := range map[string]string{
		"size(json.rules) > 0":  "",
		"json.ok":               "",
		"size(json) + heldSize": "expected a boolean, column 12",
		"nobody == 1": "nobody is unknown (use body, json, heldSize, now, certs and the standard functions of CEL), " +
			"column 1",
		"startsWith('a')":        "startsWith takes two texts; write it as in body.startsWith('…'), column 11",
		"heldSize.contains('a')": "contains takes two texts; write it as in body.contains('…'), column 18",
		"size(1) > 1":            "'size' does not take (int); write it as in size(body), column 5",
		"json.all(x > 1)":        "all takes a name and an expression, as in json.all(x, x > 0), column 9",
		"true ? 1 : 'a'":         "both results of '? :' must have the same type, column 6",
		"now - '1h' > now": "'-' does not take timestamp and string; convert one, as in int(…), double(…), string(…), " +
			"timestamp(…) or duration('1h'), column 5",
		"json.a = 1":                "'=' is not expected, column 8",
		"json.a and true":           "'and' is not expected, column 8",
		"json['a'":                  "the expression is incomplete, column 9",
		strings.Repeat("1", 1025):   "it has 1025 characters, more than 1024",
		"body.matches(body)":        "the pattern of matches must be a string in quotes, column 13",
		"matches(body, '['+']')":    "the pattern of matches must be a string in quotes, column 8",
		"body.matches('[')":         "missing closing ]: `[`, column 13",
		"body.matches('a{999}{9}')": "invalid nested repetition operator: `{999}{9}`, column 13",
		"body.matches('(a?b){999}')": "the patterns of matches have more than 2048 instructions; use less repetition, " +
			"column 13",
		"body.matches('(?i)[a-é]')": "a pattern of matches with (?i) has a range beyond ASCII, column 13",
		fmt.Sprint(strings.Repeat("[", 25), strings.Repeat("]", 25), "==json"): "it has more than 24 lists, maps and loops " +
			"(a macro counts as up to 3)",
	} {
		if got := rule.Mistake(text, true); got != want {
			t.Errorf("%.40s: %q, not %q", text, got, want)
		}
	}
	if got := rule.Mistake("size(json.rules", true); !strings.HasSuffix(got, ", column 16") ||
		strings.Contains(got, "\n") {
		t.Errorf("a syntax error is %q", got)
	}
	if got := rule.Mistake("json.data", false); got != "" {
		t.Errorf("a selection that gives no boolean is %q", got)
	}
}

func TestTheDigestDependsOnEveryExpression(t *testing.T) {
	seen := map[string]bool{}
	for _, s := range []rule.Set{
		{},
		{Expect: []string{"a"}},
		{Select: "a"},
		{Expect: []string{"a", "b"}},
		{Expect: []string{"b", "a"}},
		{Expect: []string{"ab"}},
	} {
		if seen[s.Hash()] {
			t.Errorf("%v has the digest of another set", s)
		}
		seen[s.Hash()] = true
	}
}

func TestANamespaceWaitsOnlyForItsOwnBudget(t *testing.T) {
	now := time.Now()
	limit := budget.New(budget.Config{Burst: 1, Refill: time.Second}, func() time.Time { return now })
	e, s := &rule.Evaluator{Budget: limit}, rule.Set{Expect: []string{"true"}}
	wait := func(namespace string) time.Duration {
		return e.Evaluate(t.Context(), namespace, s, nil, 0).Wait
	}
	if wait("hostile") != 0 || wait("hostile") == 0 || wait("team-a") != 0 {
		t.Error("the budget of a namespace does not limit exactly its own evaluations")
	}
}

// cpu returns the processor time that the thread has used (Linux only).
func cpu() time.Duration {
	const thread = 1
	var used syscall.Rusage
	_ = syscall.Getrusage(thread, &used)
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
