package annotation_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/kv8s/curl-me-that/proto/annotation"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/rule"
)

const digest = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

// with returns annotations that request keys a and b, with one option.
func with(name, value string) map[string]string {
	return map[string]string{annotation.DefaultKey: "a=a.example.com b=b.example.com", "x-kv8s.io/" + name: value}
}

func TestRefresh(t *testing.T) {
	for value, want := range map[string]time.Duration{
		"":        0,
		"0":       0,
		"10m":     10 * time.Minute,
		" 1h30m ": 90 * time.Minute,
		"10s":     10 * time.Second,
		"1d":      24 * time.Hour,
		"1ns":     10 * time.Second,
		"9000h":   annotation.MaxRefresh,
	} {
		request, err := grammar(t).Parse(with(annotation.RefreshName, value))
		if err != nil || request.Refresh != want {
			t.Errorf("%q: got %v, %v, want %v", value, request.Refresh, err, want)
		}
	}
}

func TestSuspend(t *testing.T) {
	for value, want := range map[string]bool{"": false, "true": true, "false": false, " True\n": true, "1": true} {
		request, err := grammar(t).Parse(with(annotation.SuspendName, value))
		if err != nil || request.Suspended != want {
			t.Errorf("%q: got %v, %v, want %v", value, request.Suspended, err, want)
		}
	}
	request, err := grammar(t).Parse(map[string]string{
		annotation.DefaultKey:    "not correct",
		"x-kv8s.io/curl-suspend": "true",
	})
	if err == nil || !request.Suspended {
		t.Errorf("a suspended object with a bad value: %+v, %v", request, err)
	}
}

func TestNow(t *testing.T) {
	now := func(value string) string {
		request, err := grammar(t).Parse(with(annotation.NowName, value))
		if err != nil {
			t.Fatal(err)
		}
		return request.Now
	}
	if got := now("2026-01-02 anything?"); got != "2026-01-02 anything?" {
		t.Errorf("got %q", got)
	}
	long := strings.Repeat("n", annotation.MaxNowBytes+1)
	if got := now(long[1:]); got != long[1:] {
		t.Errorf("the longest value: %q", got)
	}
	if a, b := now(long), now(long+"n"); a == b || len(a) > annotation.MaxNowBytes {
		t.Errorf("long values: %q and %q", a, b)
	}
	if got := now("\xff"); !strings.HasPrefix(got, "sha256:") {
		t.Errorf("invalid UTF-8 is passed on: %q", got)
	}
}

func TestSHA256(t *testing.T) {
	request, err := grammar(t).Parse(with(annotation.SHA256Name, "b="+strings.ToUpper(digest)))
	if err != nil || len(request.SHA256) != 1 || request.SHA256["b"] != digest {
		t.Errorf("got %v, %v", request.SHA256, err)
	}
}

func TestADigestOfARejectedPairDoesNotAffectOthers(t *testing.T) {
	annotations := with(annotation.SHA256Name, "b="+digest)
	annotations[annotation.DefaultKey] = "a=a.example.com b=ftp://b.example.com"
	request, err := grammar(t).Parse(annotations)
	if err != nil || len(request.Pairs) != 1 || !request.Skips() {
		t.Errorf("got %+v, %v", request, err)
	}
}

func TestOptionRefused(t *testing.T) {
	const (
		refresh, sha256 = annotation.RefreshName, annotation.SHA256Name
		notDuration     = "is not a duration such as 10m"
		notDigests      = "does not match expected format key=<64 hexadecimal digits>"
	)
	tooLong := strings.Repeat("x", annotation.MaxValueBytes+1)
	for _, c := range []struct{ name, value, wrong string }{
		{refresh, "1h [a=5min] b=10m", notDuration},
		{refresh, "10m [1h]", "is a second interval for the same key"},
		{sha256, "b=" + digest + " [a=abc]", notDigests},
		{refresh, "abc", notDuration},
		{refresh, "-10m", notDuration},
		{annotation.SuspendName, "maybe", "is not true or false"},
		{annotation.AllowHTMLName, "html", "is not true or false"},
		{sha256, "abc", notDigests},
		{sha256, "a=abc", notDigests},
		{sha256, "a=" + digest + "00", notDigests},
		{sha256, "a=" + digest + "0", notDigests},
		{sha256, "a=" + digest + " [a=" + digest + "]", notDigests},
		{sha256, "a/b=" + digest, notDigests},
		{sha256, tooLong, notDigests},
		{sha256, "a=" + digest + " [c=" + digest + "]", "has a digest for key c, which is not requested"},
	} {
		request, err := grammar(t).Parse(with(c.name, strings.NewReplacer("[", "", "]", "").Replace(c.value)))
		shown := c.value
		if _, word, found := strings.Cut(shown, "["); found { // what the message quotes
			shown = strings.Split(word, "]")[0]
		}
		if shown == tooLong {
			shown = "…"
		}
		want := "annotation " + c.name + " value '" + shown + "' " + c.wrong + blocked
		if err == nil || err.Error() != want {
			t.Errorf("got %v, want %q", err, want)
		}
		if request.Pairs != nil {
			t.Errorf("%s %.99q: half of the annotations was used: %+v", c.name, c.value, request)
		}
	}
}

func TestNewRefuses(t *testing.T) {
	for name, change := range map[string]func(*annotation.Options){
		"no key":        func(o *annotation.Options) { o.Keys = nil },
		"empty key":     func(o *annotation.Options) { o.Keys = []string{""} },
		"no prefix":     func(o *annotation.Options) { o.Keys = []string{"curl-me-that"} },
		"bad prefix":    func(o *annotation.Options) { o.Keys = []string{"under_score/curl"} },
		"refresh":       func(o *annotation.Options) { o.Keys = []string{"example.com/" + annotation.RefreshName} },
		"now":           func(o *annotation.Options) { o.Keys = []string{"example.com/" + annotation.NowName} },
		"suspend":       func(o *annotation.Options) { o.Keys = []string{"example.com/" + annotation.SuspendName} },
		"sha256":        func(o *annotation.Options) { o.Keys = []string{"example.com/" + annotation.SHA256Name} },
		"status":        func(o *annotation.Options) { o.Keys = []string{annotation.StatusKey} },
		"key twice":     func(o *annotation.Options) { o.Keys = []string{annotation.LegacyKey, annotation.LegacyKey} },
		"no scheme":     func(o *annotation.Options) { o.DefaultScheme = "" },
		"ftp":           func(o *annotation.Options) { o.DefaultScheme = "ftp" },
		"negative":      func(o *annotation.Options) { o.MinRefresh = -1 },
		"above a year":  func(o *annotation.Options) { o.MinRefresh = annotation.MaxRefresh + 1 },
		"line in a key": func(o *annotation.Options) { o.Keys = []string{"example.com/a\nb"} },
	} {
		options := annotation.Defaults()
		change(&options)
		if _, err := annotation.New(options); err == nil {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func TestNewWithOtherSettings(t *testing.T) {
	g, err := annotation.New(annotation.Options{Keys: []string{"example.com/get"}, DefaultScheme: "http"})
	if err != nil {
		t.Fatal(err)
	}
	request, err := g.Parse(map[string]string{
		annotation.DefaultKey:      "not correct",
		"example.com/get":          "a=e.example.com",
		"example.com/curl-refresh": "1s",
	})
	if url, _ := request.URL("a"); err != nil || url != "http://e.example.com" || request.Refresh != time.Second {
		t.Errorf("got %+v, %v", request, err)
	}
}

// maxProblemBytes is the maximum size of all problems of an object. Most problems share one text.
const maxProblemBytes = 2 * annotation.MaxProblems * 1024

// FuzzProblems checks that no annotations and labels, here name=value in lines, give many problems, and that the
// writer, which has no --min-refresh, explains them like the watcher.
func FuzzProblems(f *testing.F) {
	repeat := func(n int, format string) string {
		var text strings.Builder
		for i := range n {
			fmt.Fprintf(&text, format, i)
		}
		return text.String()
	}
	const prefix, key = "x-kv8s.io/", annotation.DefaultKey + "="
	keys := key + repeat(128, "k%d=e.example.com ") + "\n"
	for _, seed := range [][2]string{
		{repeat(9500, prefix+"curl-me-%d=\n"), ""},
		{key + "a=b\n" + repeat(99, strings.Repeat("x", 240)+"-kv8s.io/curl-now%d=\n"), ""},
		{"", repeat(900, prefix+"curl-me-tha%d\n")},
		{key + repeat(128, strings.Repeat("k", 240)+"%d=ftp://b "), repeat(900, prefix+"curl-no%d=\n")},
		{key + strings.Repeat(".=a ", 128), ""},
		{keys + prefix + "curl-refresh=" + repeat(128, "k%d=1ms "), repeat(9, prefix+"curl-no%d\n")},
		{keys + prefix + "curl-refresh=" + repeat(128, "k%d=1ms ") + "\n" + repeat(9, prefix+"curl-x%d=\n"), ""},
		{keys + prefix + "curl-expect=" + strings.Repeat("k1=(\t", 1300), ""},
		{keys + prefix + "curl-select=" + repeat(128, "k%d=1 +\t"), ""},
		{keys + annotation.LegacyKey + "=a=b\n" + prefix + "curl-sha256=x", ""},
		{key + "," + strings.Repeat("=", 30_000), ""},
	} {
		f.Add(seed[0], seed[1])
	}
	o := annotation.Defaults()
	watcher := grammar(f)
	o.MinRefresh = 0
	writer, err := annotation.New(o)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, annotations, labels string) {
		object := &metav1.ObjectMeta{Annotations: lines(annotations), Labels: lines(labels)}
		request, err := watcher.ParseObject(object)
		size := 0
		for _, p := range request.Problems {
			size += len(p.Key) + len(p.Rule) + len(p.Text)
		}
		if err != nil {
			size += len(err.Error())
		}
		if len(request.Problems) > annotation.MaxProblems || size > maxProblemBytes {
			t.Errorf("%d problems of %d bytes", len(request.Problems), size)
		}
		if watcher.Concerns(object) != (request.Present || len(request.Problems) > 0) {
			t.Error("an object with problems is ignored")
		}
		same, sameErr := writer.ParseObject(object)
		if a, b := request.Problem(err), same.Problem(sameErr); a != b {
			t.Errorf("the watcher explains %q, the writer %q", a, b)
		}
		for field := range strings.FieldsSeq(object.Annotations[annotation.DefaultKey]) {
			key, _, _ := strings.Cut(field, "=")
			legal := strings.Trim(key, "abcdefghijklmnopqrstuvwxyz0123456789") == ""
			if err == nil && legal && !request.Names(key) {
				t.Errorf("key %q is annotated, but would be removed", key)
			}
		}
	})
}

// lines returns the names and values of lines. A tab is a line feed in a value.
func lines(text string) map[string]string {
	all := map[string]string{}
	for line := range strings.SplitSeq(text, "\n") {
		name, value, _ := strings.Cut(line, "=")
		all[name] = strings.ReplaceAll(value, "\t", "\n")
	}
	return all
}

func TestTyposAreLookedForAmongFewNames(t *testing.T) {
	for n, want := range map[int]int{1024: 1024, 1025: 0} {
		names := map[string]string{}
		for i := range n {
			names[fmt.Sprintf("x-kv8s.io/curl-%04x", i)] = ""
		}
		request, _ := grammar(t).ParseObject(&metav1.ObjectMeta{Annotations: names})
		if got := len(request.Problems) + request.Omitted; got != want {
			t.Errorf("%d annotations: got %d problems, want %d", n, got, want)
		}
	}
}

func TestProtects(t *testing.T) {
	for _, c := range []struct {
		namespace, name string
		want            bool
	}{
		{"default", "app", false},
		{"default", "kube-root-ca.crt", true},
		{"kube-system", "app", true},
		{"kube-systems", "app", false},
	} {
		if got := annotation.Protects(annotation.DefaultProtected(), c.namespace, c.name); got != c.want {
			t.Errorf("%s/%s: got %t", c.namespace, c.name, got)
		}
	}
}

func TestSelectorExcludesTheIgnoreLabel(t *testing.T) {
	selector, err := labels.Parse(annotation.Selector)
	if err != nil {
		t.Fatal(err)
	}
	if selector.Matches(labels.Set{annotation.IgnoreLabel: annotation.IgnoreValue}) || !selector.Matches(labels.Set{}) {
		t.Errorf("%q does not exclude only %s=%s", annotation.Selector, annotation.IgnoreLabel, annotation.IgnoreValue)
	}
}

func TestErrorText(t *testing.T) {
	for name, c := range map[string]struct{ value, shown string }{
		"as written":         {"not correct", "not correct"},
		"as written, spaces": {"  not   correct ", "  not   correct "},
		"sample":             {"mydata=this isn't a url", "mydata=this isn't a url"},
		"new lines":          {"not\ncorrect\r\n", "not correct  "},
		"control characters": {"not\x00\x1bcorrect\u2028\u202e", "not  correct  "},
		"invalid UTF-8":      {"not \xff\xfe correct", "not \uFFFD correct"},
		"scheme":             {"a=ftp://e.example.com/x", "a=ftp://e.example.com/x"},
		"query":              {"a=ftp://e.example.com/x?token=secret", "a=ftp://e.example.com/x?…"},
		"query, next pair": {
			"a=e.example.com/?t=secret b=ftp://e.example.com?t=secret",
			"a=e.example.com/?… b=ftp://e.example.com?…",
		},
		"query over white space": {"a=e.example.com/?t=se cret or\nmore b=x", "a=e.example.com/?… b=x"},
		"empty query":            {"a=ftp://e.example.com/?", "a=ftp://e.example.com/?"},
		"fragment":               {"a=ftp://e.example.com/#secret", "a=ftp://e.example.com/#…"},
		"fragment and query":     {"a=ftp://e.example.com/#secret?secret", "a=ftp://e.example.com/#…"},
		"user":                   {"a=https://secret@e.example.com/x", "a=…"},
		"password":               {"a=https://user:secret@e.example.com/x?q=1 b=c", "a=… b=c"},
		"password, no scheme":    {"a=user:secret@e.example.com", "a=…"},
		"password, no key":       {"https://user:secret@e.example.com/x", "…"},
		"password, bad key":      {"$a=https://user:secret@e.example.com/x", "$a=…"},
		"? in password":          {"a=https://user:sec?ret@e.example.com b=c", "a=… b=c"},
		"space in password":      {"a=https://user:sec ret@e.example.com/x", "a=…"},
		"space before password":  {"a= https://user:secret@e.example.com/x", "a=…"},
		"a value too long":       {strings.Repeat("a", annotation.MaxValueBytes+1), "…"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := grammar(t).Parse(map[string]string{annotation.DefaultKey: "a=b", "x-kv8s.io/curl-suspend": c.value})
			want := "annotation curl-suspend value '" + c.shown + "' is not true or false" + blocked
			if err.Error() != want {
				t.Errorf("\n got %q\nwant %q", err, want)
			}
		})
	}
}

func TestOnlyTheBadPartIsShown(t *testing.T) {
	for value, shown := range map[string]string{
		"a=e.example.com oops b=e.example.com":         "a=e.example.com oops",
		"a=e.example.com b=e.example.com\noops":        "b=e.example.com oops",
		"oops a=e.example.com":                         "oops",
		"a=e.example.com/?t=S3CR3T et b=e.example.com": "a=e.example.com/?…",
		"b=c a=https://u:S3CR3 T @e.example.com/":      "a=…",
		"b=c a = https://e.example.com":                "b=c a = https://e.example.com",
	} {
		_, err := grammar(t).Parse(ask(value))
		if err == nil || err.Error() != "annotation value '"+shown+"' does not match expected format key=url" {
			t.Errorf("%s: got %v", value, err)
		}
	}
}

func TestAWordWithPartOfASecretIsNotShown(t *testing.T) {
	_, err := grammar(t).Parse(with(annotation.RefreshName, "1h a=https://user:sec ret@example.com"))
	if err == nil || err.Error() != "annotation curl-refresh value '1h a=…' is not a duration such as 10m"+blocked {
		t.Error(err)
	}
}

func TestErrorTextIsCut(t *testing.T) {
	shown := func(value string) string {
		_, err := grammar(t).Parse(ask(value))
		text := strings.TrimPrefix(err.Error(), "annotation value '")
		return strings.TrimSuffix(text, "' does not match expected format key=url")
	}
	if exact := strings.Repeat("ü", 200); shown(exact) != exact {
		t.Errorf("200 characters were shortened: %q", shown(exact))
	}
	if got := shown(strings.Repeat("ü", 201)); utf8.RuneCountInString(got) != 200 || !strings.HasSuffix(got, "ü…") {
		t.Errorf("201 characters gave %q", got)
	}
	// Secrets are hidden before the text is cut.
	if got := shown("a=https://user:" + strings.Repeat("s", 300) +
		"@e.example.com/ b"); got != "a=…" {
		t.Errorf("got %q", got)
	}
}

func ExampleGrammar_Parse() {
	grammar, err := annotation.New(annotation.Defaults())
	if err != nil {
		panic(err)
	}
	request, err := grammar.Parse(map[string]string{
		"x-kv8s.io/curl-me-that": "ca.pem=https://example.com/ca.pem motd=example.com/motd news=ftp://example.com/",
		"x-kv8s.io/curl-refresh": "1h motd=10m",
	})
	if err != nil {
		panic(err)
	}
	for _, pair := range request.Pairs {
		fmt.Println(pair.Key, pair.URL, request.Interval(pair.Key))
	}
	for _, problem := range request.Problems {
		fmt.Println(problem.Key, problem.Text)
	}
	// Output:
	// ca.pem https://example.com/ca.pem 1h0m0s
	// motd https://example.com/motd 10m0s
	// news annotation curl-me-that, pair 3 (key news): the scheme must be http or https; use http:// or https://
}

func TestRulesAndSelections(t *testing.T) {
	annotations := with(annotation.ExpectName, "\n a = size(json.rules) > 0 \n\na=json.version >= 3\nb=body == 'x=y'\n")
	annotations["x-kv8s.io/curl-select"] = "a=json.data"
	request, err := grammar(t).Parse(annotations)
	want := map[string]rule.Set{
		"a": {Expect: []string{"size(json.rules) > 0", "json.version >= 3"}, Select: "json.data"},
		"b": {Expect: []string{"body == 'x=y'"}},
	}
	if err != nil || !reflect.DeepEqual(request.Rules, want) || len(request.Problems) > 0 || len(request.Pairs) != 2 {
		t.Errorf("got %+v, %v", request, err)
	}
}

func TestAnUnusableExpressionRejectsItsKey(t *testing.T) {
	for value, want := range map[string]string{
		"b=true\na=json.version":          "",
		"\na=size(json) + 1":              "rule 1 of key a: expected a boolean, column 12",
		strings.Repeat("\na=true", 9)[1:]: "line 9 (key a): the key has more than 8 rules",
	} {
		request, err := grammar(t).Parse(with(annotation.ExpectName, value))
		if want == "" {
			if err != nil || len(request.Problems) > 0 {
				t.Errorf("%q: %+v, %v", value, request.Problems, err)
			}
			continue
		}
		request = request.Checked()
		_, asked := request.URL("a")
		if err != nil || asked || !request.Names("a") || len(request.Pairs) != 1 ||
			request.Problems[0].Text != "annotation curl-expect, "+want {
			t.Errorf("%q: got %+v, %v, want %q", value, request.Problems, err, want)
		}
	}
}

func TestASelectionWithADigestOrASecondSelectionIsRejected(t *testing.T) {
	for value, want := range map[string]string{
		"a=json.a": "annotation curl-select, line 1 (key a): the key has a digest in curl-sha256, which is " +
			"that of the whole body; remove one of them",
		"b=json.a\nb=json.b": "annotation curl-select, line 2 (key b): the key appears twice; use each key once",
	} {
		annotations := with(annotation.SelectName, value)
		annotations["x-kv8s.io/curl-sha256"] = "a=" + digest
		request, err := grammar(t).Parse(annotations)
		if err != nil || len(request.Pairs) != 1 || request.Problem(nil) != want {
			t.Errorf("%q: got %q, %v", value, request.Problem(nil), err)
		}
	}
}

func TestALineWithoutAKeyStopsAllFetches(t *testing.T) {
	for value, want := range map[string]string{
		"a=true\nsize(body) > 0":  ", line 2: it does not begin with key=",
		"c=true":                  ", line 1: key c is not requested",
		strings.Repeat(" ", 8193): " has 8193 bytes, more than 8192",
	} {
		if _, err := grammar(t).Parse(with(annotation.ExpectName, value)); err == nil ||
			err.Error() != "annotation curl-expect"+want+blocked {
			t.Errorf("%.20q: got %v", value, err)
		}
	}
}

// A part for a key without a pair is often left over. It must not stop the other keys.
func TestAnOrphanIsIgnoredWithAProblem(t *testing.T) {
	for name, tt := range map[string]struct{ value, want string }{
		annotation.SelectName:  {"a=json.x\nc=json.y", "annotation curl-select, line 2: key c is"},
		annotation.RefreshName: {"1h c=1m a=2h", "annotation curl-refresh: key c is"},
	} {
		request, err := grammar(t).Parse(with(name, tt.value))
		want := tt.want + " not requested, so this part has no effect; remove it, or add the pair"
		if err != nil || len(request.Pairs) != 2 || request.Problem(nil) != want || request.Skips() {
			t.Errorf("%s: got %+v, %v", name, request, err)
		}
		if name == annotation.SelectName && request.Rules["a"].Select != "json.x" ||
			name == annotation.RefreshName && request.Interval("a") != 2*time.Hour {
			t.Errorf("%s: the other part is not followed: %+v", name, request)
		}
	}
}

func TestIntervalsByKey(t *testing.T) {
	for value, want := range map[string]map[string]time.Duration{
		"10m":          {"a": 10 * time.Minute, "b": 10 * time.Minute},
		"10m a=1m":     {"a": time.Minute, "b": 10 * time.Minute},
		"a=1m\n b=1d ": {"a": time.Minute, "b": 24 * time.Hour},
		"b=0 1h":       {"a": time.Hour, "b": 0},
		"a=1s":         {"a": 10 * time.Second, "b": 0},
	} {
		request, err := grammar(t).Parse(with(annotation.RefreshName, value))
		got := map[string]time.Duration{"a": request.Interval("a"), "b": request.Interval("b")}
		if err != nil || !maps.Equal(got, want) {
			t.Errorf("%q: got %v, %v, want %v", value, got, err, want)
		}
	}
	for value, want := range map[string]string{
		"10m 5m":    "annotation curl-refresh value '5m' is a second interval for the same key",
		"a=1m a=2m": "annotation curl-refresh value 'a=2m' is a second interval for the same key",
		"a=soon":    "annotation curl-refresh value 'a=soon' is not a duration such as 10m",
	} {
		if _, err := grammar(t).Parse(with(annotation.RefreshName, value)); err == nil ||
			!strings.HasPrefix(err.Error(), want+";") {
			t.Errorf("%q: got %v", value, err)
		}
	}
	request, _ := grammar(t).Parse(with(annotation.RefreshName, "1h a=1m"))
	request, _ = annotation.Bounded(&v1.Bound{Stretch: 4}, "ns", request, nil)
	if request.Interval("a") != 4*time.Minute || request.Interval("b") != 4*time.Hour {
		t.Errorf("the intervals are %v and %v", request.Interval("a"), request.Interval("b"))
	}
}

// A goroutine that serves all namespaces parses annotations, so parsing must not compile expressions.
func TestParsingDoesNotCompileExpressions(t *testing.T) {
	request, err := grammar(t).Parse(with(annotation.ExpectName, "a=size("))
	if err != nil || len(request.Problems) > 0 || len(request.Pairs) != 2 || len(request.Checked().Pairs) != 1 {
		t.Errorf("got %+v, %v", request, err)
	}
}

// samples returns managedFields recorded from kube-apiserver 1.36.3, by the operations on the object.
func samples(t *testing.T) map[string][]metav1.ManagedFieldsEntry {
	t.Helper()
	text, err := os.ReadFile("testdata/managedfields.json")
	if err != nil {
		t.Fatal(err)
	}
	var all map[string][]metav1.ManagedFieldsEntry
	if err := json.Unmarshal(text, &all); err != nil {
		t.Fatal(err)
	}
	return all
}

// entry returns the managedFields entry of a manager for an update in the given second.
func entry(manager string, second int64, fields string) metav1.ManagedFieldsEntry {
	return metav1.ManagedFieldsEntry{
		Manager: manager, Operation: "Update", Time: new(metav1.Unix(second, 0)),
		FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(fields),
	}
}

func ownersOf(t *testing.T, entries []metav1.ManagedFieldsEntry) annotation.Owners {
	t.Helper()
	owners, err := annotation.ParseOwners(entries)
	if err != nil {
		t.Fatal(err)
	}
	return owners
}

func TestOwner(t *testing.T) {
	none := annotation.Ownership{State: annotation.None, Fingerprint: "none"}
	unknown := annotation.Ownership{State: annotation.Unknown, Fingerprint: "unknown"}
	ours := annotation.Ownership{State: annotation.Ours}
	foreign := func(fingerprint string) annotation.Ownership {
		return annotation.Ownership{State: annotation.Foreign, Fingerprint: fingerprint}
	}
	all := samples(t)
	for _, c := range []struct {
		sample, key string
		want        annotation.Ownership
	}{
		{"created", "x", foreign("kubectl-create/Update/2026-11-20T12:40:52Z")},
		{"created", "mydata", none},
		{"created without fields", "mydata", unknown},
		{"annotated", "mydata", none},
		{"annotated", ".", none},
		{"written by us", "mydata", ours},
		{"written by us", "x", foreign("kubectl-create/Update/2026-11-20T12:40:52Z")},
		{"edited by another", "mydata", foreign("kubectl-edit/Update/2026-11-20T12:40:56Z")},
		{"deleted by another", "mydata", none},
		{"applied by another with our value", "mydata", ours},
		{"applied by force", "mydata", foreign("kubectl/Apply/2026-11-20T12:46:32Z")},
		{"written by us to binaryData", "mydata", ours},
		{"deleted from binaryData", "mydata", none},
		{"reset", "mydata", unknown},
		{"reset, then edited", "z", unknown},
		{"reset, then applied", "x", foreign("before-first-apply/Update/2026-11-20T12:46:33Z")},
		{"reset, then applied", "w", foreign("kubectl/Apply/2026-11-20T12:46:33Z")},
	} {
		entries, found := all[c.sample]
		if !found {
			t.Fatalf("no sample %q", c.sample)
		}
		if got := ownersOf(t, entries).Of(c.key); got != c.want {
			t.Errorf("%s, key %s: got %+v, want %+v", c.sample, c.key, got, c.want)
		}
	}
}

func TestOwnerWithInvalidManagedFields(t *testing.T) {
	good, status := entry("m", 1, `{"f:data":{"f:mydata":{}}}`), entry("m", 1, `{"f:data":{"f:mydata":{}}}`)
	status.Subresource = "status"
	another := entry("m", 1, `{}`)
	another.FieldsType = "FieldsV2"
	for name, c := range map[string]struct {
		entries   []metav1.ManagedFieldsEntry
		malformed bool
	}{
		"absent":          {nil, false},
		"one empty entry": {[]metav1.ManagedFieldsEntry{{}}, false},
		"null":            {[]metav1.ManagedFieldsEntry{entry("m", 1, "null")}, false},
		"not an object":   {[]metav1.ManagedFieldsEntry{good, entry("m", 1, `[]`)}, true},
		"data not a map":  {[]metav1.ManagedFieldsEntry{good, entry("m", 1, `{"f:data":[]}`)}, true},
		"cut short":       {[]metav1.ManagedFieldsEntry{good, entry("m", 1, `{"f:data":{`)}, true},
		"another type":    {[]metav1.ManagedFieldsEntry{good, another}, true},
		"a subresource":   {[]metav1.ManagedFieldsEntry{status}, false},
	} {
		owners, err := annotation.ParseOwners(c.entries)
		if errors.Is(err, annotation.ErrManagedFields) != c.malformed || err != nil != c.malformed {
			t.Errorf("%s: error %v", name, err)
		}
		if got := owners.Of("mydata"); got.State != annotation.Unknown || got.Fingerprint != "unknown" {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func TestFingerprint(t *testing.T) {
	at := func(name string, second int64) metav1.ManagedFieldsEntry {
		return entry(name, second, `{"f:data":{"f:a":{}}}`)
	}
	of := func(entries ...metav1.ManagedFieldsEntry) string { return ownersOf(t, entries).Of("a").Fingerprint }
	if got := of(at("old", 1), at("new", 2)); got != "new/Update/1970-01-01T00:00:02Z" {
		t.Errorf("not from the newest owner: %q", got)
	}
	if of(at("x", 1), at("y", 1)) != of(at("y", 1), at("x", 1)) {
		t.Error("depends on the order of the entries")
	}
	if of(at("x", 1)) == of(at("x", 2)) {
		t.Error("a later write of the same manager does not show")
	}
	long := strings.Repeat("m", 128)
	if got := of(at(long, 1)); len(got) > 64 || got == of(at(long, 2)) {
		t.Errorf("for a long name: %q", got)
	}
	timeless := at("x", 1)
	timeless.Time = nil
	if got := of(timeless); got != "x/Update/0001-01-01T00:00:00Z" {
		t.Errorf("without a time: %q", got)
	}
}

func TestAnnotationChanged(t *testing.T) {
	all := samples(t)
	for sample, want := range map[string]string{
		"created":             "",
		"annotated":           "2026-11-20T12:40:53Z",
		"edited by another":   "2026-11-20T12:40:53Z",
		"reset":               "",
		"reset, then applied": "2026-11-20T12:46:33Z",
	} {
		got := ""
		if changed := ownersOf(t, all[sample]).AnnotationChanged(annotation.DefaultKey); !changed.IsZero() {
			got = changed.Format(time.RFC3339)
		}
		if got != want {
			t.Errorf("%s: got %q, want %q", sample, got, want)
		}
	}
}

func TestOther(t *testing.T) {
	owners := ownersOf(t, samples(t)["written by us"])
	for key, want := range map[string]string{"mydata": "", "x": "kubectl-create", "absent": ""} {
		if got := owners.Other(key); got != want {
			t.Errorf("the other owner of %s is %q, want %q", key, got, want)
		}
	}
}

// Only keeps everything about matching keys.
func TestOnly(t *testing.T) {
	text := `{"f:data":{"f:a":{},"f:b":{},"f:c":{}},` +
		`"f:binaryData":{"f:d":{},"f:e":{}},"f:metadata":{"f:annotations":{"f:x":{}}}}`
	whole, err := annotation.ParseOwners([]metav1.ManagedFieldsEntry{entry("m", 1, text)})
	if err != nil || whole.AnnotationChanged("x").IsZero() {
		t.Fatal(whole, err)
	}
	kept := whole.Only(func(key string) bool { return strings.Contains("abd", key) })
	for key, matters := range map[string]bool{"a": true, "b": true, "d": true, "c": false, "e": false} {
		got, want := kept.Of(key), whole.Of(key)
		if (got == want) != matters || want.Fingerprint != "m/Update/1970-01-01T00:00:01Z" ||
			!matters && got.State != annotation.None {
			t.Errorf("%s: got %+v, the whole has %+v", key, got, want)
		}
	}
	if !kept.AnnotationChanged("x").IsZero() {
		t.Error("annotations are kept")
	}
}

func TestManager(t *testing.T) {
	for owner, want := range map[annotation.Ownership]string{
		{State: annotation.Foreign, Fingerprint: "kubectl-edit/Update/2026-01-02T12:00:00Z"}: "kubectl-edit",
		{State: annotation.Foreign, Fingerprint: "team/tool/Apply/2026-01-02T12:00:00Z"}:     "team/tool",
		{State: annotation.Foreign, Fingerprint: "0123456789abcdef"}:                         "",
		{State: annotation.None, Fingerprint: "none"}:                                        "",
		{State: annotation.Ours}: "",
	} {
		if got := owner.Manager(); got != want {
			t.Errorf("%+v: got %q", owner, got)
		}
	}
}

func TestAncientChangesProveNothing(t *testing.T) {
	data := `{"f:data":{"f:k":{}}}`
	ancient := entry("ancient-changes", 5, data)
	for name, tt := range map[string]struct {
		entries []metav1.ManagedFieldsEntry
		want    annotation.OwnerState
	}{
		"alone":                  {[]metav1.ManagedFieldsEntry{ancient}, annotation.Unknown},
		"and we":                 {[]metav1.ManagedFieldsEntry{ancient, entry("curl-me-that", 1, data)}, annotation.Ours},
		"and a later manager":    {[]metav1.ManagedFieldsEntry{ancient, entry("kubectl", 9, data)}, annotation.Foreign},
		"and an earlier manager": {[]metav1.ManagedFieldsEntry{ancient, entry("kubectl", 1, data)}, annotation.Unknown},
	} {
		owner := ownersOf(t, tt.entries).Of("k")
		if owner.State != tt.want || owner.State != annotation.Ours && owner.Unsettled() == owner.Fingerprint {
			t.Errorf("%s: %+v", name, owner)
		}
	}
	if other := ownersOf(t, []metav1.ManagedFieldsEntry{ancient}).Other("k"); other != "" {
		t.Errorf("another owner: %s", other)
	}
}
