package rule_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kv8s/curl-me-that/proto/process/budget"
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
		if seen[s.Digest()] {
			t.Errorf("%v has the digest of another set", s)
		}
		seen[s.Digest()] = true
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

// ca is a bundle of two authorities.
var ca = certificate(0) + "\n" + certificate(0)

// certificate returns a self-signed certificate in PEM, with so many further names of a type that few know.
func certificate(names int) string {
	name := pkix.RDNSequence{
		{{Type: asn1.ObjectIdentifier{2, 5, 4, 10}, Value: "kv8s"}},
		{{Type: asn1.ObjectIdentifier{2, 5, 4, 3}, Value: "curl-me-that"}},
	}
	other := pkix.AttributeTypeAndValue{Type: asn1.ObjectIdentifier{1, 2}, Value: "a"}
	name = append(name, slices.Repeat(pkix.RDNSequence{{other}}, names)...)
	subject, err := asn1.Marshal(name)
	if err != nil {
		panic(err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	c := &x509.Certificate{
		SerialNumber: big.NewInt(1), RawSubject: subject, NotBefore: time.Now(), NotAfter: time.Now().AddDate(20, 0, 0),
		BasicConstraintsValid: true, IsCA: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, c, c, key.Public(), key)
	if err != nil {
		panic(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

func TestOnlyWholeCertificatesInPEMAndBlanksAreRead(t *testing.T) {
	one := certificate(0)
	lines := strings.SplitAfter(one, "\n")
	block, _ := pem.Decode([]byte(one))
	labelled := func(label string, der []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: label, Bytes: der}))
	}
	for want, bodies := range map[rule.Cause][]string{
		rule.Passed: {
			one, strings.TrimSpace(one), strings.ReplaceAll(one+one, "\n", "\r\n"), strings.Repeat(one, 100),
			"\n \t\n" + strings.ReplaceAll(one, "-\n", "- \n") + "\n\n" + one + "\n",
		},
		rule.BadCertificate: {
			one + one[:len(one)/2], strings.Join(lines[:len(lines)-2], ""), "-----BEGIN CERTIFICATE-----\n" + one,
			strings.Replace(one, "MII", "M!I", 1), labelled("CERTIFICATE", append(slices.Clone(block.Bytes), 0)),
		},
		rule.NotCertificates: {
			one + labelled("PRIVATE KEY", block.Bytes), labelled("X509 CERTIFICATE", block.Bytes), "Subject: a\n" + one,
			strings.ReplaceAll(one, "-----BEGIN", "  -----BEGIN"), "\ufeff" + one, "<pre>\n" + one + "</pre>\n",
			string(block.Bytes),
		},
		rule.False:    {"\n"},
		rule.TooLarge: {strings.Repeat(one, 1000)},
	} {
		for _, body := range bodies {
			if got := evaluate(body, "size(certs(body)) > 0", 0); got != want {
				t.Errorf("%.60q is %s, not %s", body, got, want)
			}
		}
	}
}

func TestATextHasAtMostAThousandCertificates(t *testing.T) {
	one := strings.Repeat(ca+"\n", 84)
	for text, want := range map[string]rule.Cause{
		"body": rule.Passed, "body + body + body + body + body + body": rule.Costly,
	} {
		if got := evaluate(one, "size(certs("+text+")) > 0", 0); got != want {
			t.Errorf("168 certificates in each body of %s are %s", text, got)
		}
	}
}

func ExampleEvaluator_Evaluate() {
	set := rule.Set{Expect: []string{`size(json.prefixes) > 0`}, Select: `json.prefixes`}
	var evaluator rule.Evaluator
	for _, body := range []string{`{"prefixes": ["192.0.2.0/24"]}`, `{"prefixes": []}`, `<html>`} {
		outcome := evaluator.Evaluate(context.Background(), "team-a", set, []byte(body), 0)
		number, cause := outcome.Failed()
		if cause != rule.Passed {
			fmt.Printf("rule %d is %s\n", number, cause)
			continue
		}
		fmt.Printf("selected %s\n", outcome.Selected)
	}
	// Output:
	// selected ["192.0.2.0/24"]
	// rule 1 is false
	// rule 1 is not JSON
}
