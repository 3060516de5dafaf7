package rule_test

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/rule"
	"github.com/kv8s/curl-me-that/proto/sentence"
)

// times applies a macro n times, which doubles its value each time.
func times(n int, start, step string) string {
	return strings.Repeat("[", n) + start + strings.Repeat("]"+step+"[0]", n)
}

// chain repeats a part up to the maximum length of an expression, without a few spaces.
func chain(part, separator string) string {
	n := (rule.MaxLength - 4) / (len(part) + len(separator))
	return strings.TrimSuffix(strings.Repeat(part+separator, n), separator)
}

// hostileExpressions use as much time, memory or stack of the evaluator as possible.
func hostileExpressions() []string {
	digits := "[" + strings.TrimSuffix(strings.Repeat("0,", 100), ",") + "]"
	return []string{
		times(40, "body", ".map(x,x+x)") + " == ''",
		times(40, "body", ".map(x,[x,x])") + " == body",
		times(40, "json", ".map(x,[x,x])") + " == " + times(3, "json", ".map(x,[x,x])"),
		times(40, "[json]", ".map(x,x+x)") + " == [json]",
		"string(size(" + times(40, "[json]", ".map(x,x+x)") + "[0].map(y,[y,y]))) == body",
		times(40, "[0]", ".map(x,x+x)") + ".all(x,x==0)",
		"size(" + times(40, "[0]", ".map(x,x+x)") + ") > 0",
		"1 in " + times(40, "[0]", ".map(x,x+x)"),
		times(30, "{'a':json}", ".map(x,{'a':x,'b':x})") + " != {}",
		"[" + strings.TrimSuffix(strings.Repeat("body+", 90), "+") + "].size() > 0",
		"size(" + strings.TrimSuffix(strings.Repeat("body+", 90), "+") + ") > 0",
		digits + ".map(a," + digits + ".map(b," + digits + ".map(c,body+body)))==[]",
		digits + ".all(a," + digits + ".all(b," + digits + ".all(c,size(body)>=0)))",
		digits + ".map(a," + digits + ".map(b," + digits + ".map(c,[a,b,c])))==[]",
		digits + ".map(a,bytes(body)) == []",
		digits + ".map(a,string(bytes(body))+'x') == []",
		"body.matches('.{0,1000}y')",
		"body.matches('(x+x+)+y')",
		"body.matches('((a{30}){30})*b')",
		"body.matches('(.*)(.*)(.*)(.*)(.*)(.*)(.*)[a-z]$')",
		"body.matches('(a?){600}')",
		"body.matches('(?i)" + strings.Repeat(`\\PL`, 20) + "')",
		"[body.matches('(x|y)*z$')]==[true]",
		chain("''.matches('(a?b?){300}')", "||"),
		strings.TrimSuffix(strings.Repeat("body.matches('.*.*.*x')||", 40), "||"),
		digits + ".exists(a," + digits + ".exists(b,body.matches('.*.*.*x')))",
		digits + ".exists(a,body.contains(body+'x'))",
		digits + ".map(a,json) == " + digits + ".map(a,json)",
		"json.all(x,json.all(y,json.all(z,x==z)))",
		"json.map(x,json.map(y,[json,json])) == json",
		"json.filter(x,x in json).size() == 0",
		"json == json && json in [json,json,json]",
		"json[json[json[0]]] == json",
		"body[0] == 1",
		"int(body) > 0 || double(body) > 0.0",
		chain("duration(body)<duration(body)", "||"),
		chain("timestamp(body)<timestamp(body)", "||"),
		chain("double(body)<0.0", "||"),
		chain("int(body)<0", "||"),
		chain("uint(body)<0u", "||"),
		chain("bool(body)", "||"),
		chain("size(body)<0", "||"),
		chain("body<body", "||"),
		chain("body.contains('xy')", "||"),
		chain("body.endsWith(body+body)", "||"),
		chain("timestamp(0).getHours(body)<0", "||"),
		chain("size(bytes(body))<0", "||"),
		chain("json==[json]", "||"),
		"[0,0,0,0,0,0,0,0,0,0,0,0,0,0,0].all(x," + strings.Repeat("size(body)>=0&&", 60) + "true)",
		strings.Repeat("(", 90) + "json" + strings.Repeat(")", 90) + " == 1",
		strings.Repeat("!", 95) + "(json == json)",
		strings.Repeat("(", 500) + "1" + strings.Repeat(")", 500) + " == 1",
		digits + ".map(a,certs(body)) == []",
		chain("certs(body)==certs(body)", "||"),
		"certs(body)==certs(body) && certs(body+body)!=certs(body).map(c,c)",
		"certs(body).map(c,certs(body)) == []",
		"heldSize / 0 == 1 || 9223372036854775807 + heldSize == 1",
		strings.Repeat("1+", 90) + "1 == json",
	}
}

// hostileBodies are bodies from malicious servers.
func hostileBodies() map[string]string {
	const kib256 = 256 << 10
	fill := func(part string) string { return strings.Repeat(part, kib256/len(part)) }
	list := func(part string) string {
		return "[" + strings.Repeat(part+",", (kib256-8)/(len(part)+1)-1) + part + "]"
	}
	return map[string]string{
		"empty":           "",
		"null":            "null",
		"deep lists":      strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000),
		"deep objects":    strings.Repeat(`{"":`, 60_000),
		"nested 100":      strings.Repeat("[", 100) + strings.Repeat("]", 100),
		"letters":         fill("x"),
		"spaces":          fill(" "),
		"digits":          fill("9"),
		"a number":        "0." + strings.Repeat("1", kib256-2),
		"a duration":      fill("1ns"),
		"a path":          strings.Repeat("a/", 2000),
		"huge exponent":   "[1e999999]",
		"many exponents":  list("1e308"),
		"invalid UTF-8":   fill("\xff\xfe"),
		"runes":           fill("€"),
		"empty lists":     list("[]"),
		"empty objects":   list("{}"),
		"objects":         list(`{"":0}`),
		"1 MB of objects": strings.Repeat(`{"":0},`, 150_000),
		"numbers":         list("0"),
		"texts":           list(`"x"`),
		"object":          "{" + strings.TrimSuffix(manyKeys(20_000), ",") + "}",
		"certificates":    fill(certificate(0)),
		"long names":      fill(certificate(4000)),
		"huge names":      certificate(7500),
		"begin and end":   fill("-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n"),
		"half":            "-----BEGIN CERTIFICATE-----\n" + fill("A\n"),
		"escapes":         `["` + strings.Repeat(`\\\"`, kib256/4-2) + `"]`,
	}
}

func manyKeys(n int) string {
	var text strings.Builder
	for i := range n {
		fmt.Fprintf(&text, `"%d":0,`, i)
	}
	return text.String()
}

const (
	// longest is the maximum CPU time of an evaluation, and longestCompile of a compilation. They are longer
	// under the race detector.
	longest, longestCompile = 150 * time.Millisecond * slower, 50 * time.Millisecond * slower
	// mostMemory is the maximum heap of evaluations, as in deploy/docs/rules.md.
	mostMemory = 128 << 20
)

func TestHostileExpressionsOnHostileBodiesEndInTime(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(100))
	e := new(rule.Evaluator)
	var peak atomic.Uint64
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for tick := time.NewTicker(time.Millisecond); ; {
			select {
			case <-stop:
				return
			case <-tick.C:
				peak.Store(max(peak.Load(), heap()))
			}
		}
	}()
	before, slowest := heap(), time.Duration(0)
	bodies, expressions := hostileBodies(), hostileExpressions()
	for name, body := range bodies {
		for _, text := range expressions {
			var o rule.Evaluation
			took := quickest(longest, func(int) {
				o = e.Evaluate(t.Context(), "hostile", rule.Set{Expect: []string{text}, Select: text}, []byte(body), 1)
			})
			if took >= longest {
				t.Errorf("%.60s on %s took %s", text, name, took)
			}
			slowest = max(slowest, took)
			number, cause := o.Failed()
			if cause != rule.Passed && !strings.Contains(sentenceOf(text, number), "the response for k "+[]string{
				"has nothing for curl-select, ", "does not meet rule 1 of curl-expect, ",
			}[number]) {
				t.Errorf("%.60s on %s ends with the sentence %q", text, name, sentenceOf(text, number))
			}
		}
	}
	close(stop)
	<-stopped
	if more := int64(peak.Load() - before); more > mostMemory {
		t.Errorf("evaluations took %d MiB", more>>20)
	} else {
		t.Logf("%d expressions on %d bodies took at most %s and %d MiB", len(expressions), len(bodies), slowest, more>>20)
	}
}

// sentenceOf returns the sentence of the Event about a body that does not pass an expression.
func sentenceOf(text string, number int) string {
	return sentence.Failure(&v1.Want{Url: "https://rules.example.com", Key: "k", Expect: []string{text}, Select: text},
		&v1.Failure{Class: v1.FailureClass_FAILURE_CLASS_CONTENT_REJECTED, Rule: uint32(number)})
}

// quickest returns the CPU time of a call. It retries calls that take too long, because the garbage collector
// works for others, too.
func quickest(limit time.Duration, call func(try int)) (took time.Duration) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for try := range 5 {
		before := cpu()
		call(try)
		if took = cpu() - before; took < limit {
			break
		}
	}
	return took
}

func heap() uint64 {
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}
