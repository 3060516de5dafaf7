package annotation_test

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kv8s/curl-me-that/proto/annotation"
)

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
			size += len(p.Key) + len(p.Mistake) + len(p.Text)
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
		if a, b := request.ProblemText(err), same.ProblemText(sameErr); a != b {
			t.Errorf("the watcher explains %q, the writer %q", a, b)
		}
		for field := range strings.FieldsSeq(object.Annotations[annotation.DefaultKey]) {
			key, _, _ := strings.Cut(field, "=")
			legal := strings.Trim(key, "abcdefghijklmnopqrstuvwxyz0123456789") == ""
			if err == nil && legal && !request.Mentions(key) {
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

// The status lists everything that is not followed, except adjustments by flags that only the watcher
// has.
func TestProblemOfTheObject(t *testing.T) {
	t.Parallel()
	const key = annotation.DefaultKey
	for want, annotations := range map[string]map[string]string{
		"": {key: "a=example.com"},
		"annotation value 'x' does not match expected format key=url": {
			key:                     "x",
			"x-kv8s.io/curl-refrsh": "1h",
		},
		"annotation curl-refresh value 'soon' is not a duration such as 10m" + blocked: {
			key:                      "a=example.com",
			"x-kv8s.io/curl-refresh": "soon",
		},
		"annotation x-kv8s.io/curl-refrsh is unknown and has no effect; did you mean curl-refresh?": {
			key: "a=example.com/,b=c", "x-kv8s.io/curl-refrsh": "1h", "x-kv8s.io/curl-refresh": "1ms",
		},
		"annotation curl-me-that, pair 1 (key a): the scheme must be http or https; use http:// or https://; " +
			"also annotation x-k8s.io/curl-me-that is ignored, because x-kv8s.io/curl-me-that takes precedence; remove one " +
			"of them": {key: "a=ftp://example.com", annotation.LegacyKey: "x"},
	} {
		request, err := grammar(t).Parse(annotations)
		if got := request.ProblemText(err); got != want {
			t.Errorf("%v:\n got %s\nwant %s", annotations, got, want)
		}
	}
	request, err := grammar(t).Parse(map[string]string{key: strings.Repeat(".=a ", annotation.MaxPairs)})
	if got := request.ProblemText(err); len(got) > 1000 || !strings.HasSuffix(got, "; and 120 more") {
		t.Errorf("%d bytes: %s", len(got), got)
	}
	request, err = grammar(t).Parse(map[string]string{"x-kv8s.io/curl-me-tha": "a=example.com"})
	if got := request.ProblemText(err); got != "" || len(request.Problems) != 1 {
		t.Errorf("for an object without a request: %s", got)
	}
}

func TestAProblemStaysTheSameWhenOtherPairsChange(t *testing.T) {
	one, _ := grammar(t).Parse(ask("b=ftp://e.example.com"))
	two, _ := grammar(t).Parse(ask("a=a.example.com b=ftp://e.example.com"))
	p, q := one.Problems[0], two.Problems[0]
	if p.Key != q.Key || p.Mistake == "" || p.Mistake != q.Mistake || p.Text == q.Text {
		t.Errorf("%+v, then %+v", p, q)
	}
}
