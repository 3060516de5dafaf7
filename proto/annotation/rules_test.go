package annotation_test

import (
	"encoding/json"
	"maps"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kv8s/curl-me-that/proto/annotation"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/rule"
)

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
		if err != nil || asked || !request.Mentions("a") || len(request.Pairs) != 1 ||
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
		if err != nil || len(request.Pairs) != 1 || request.ProblemText(nil) != want {
			t.Errorf("%q: got %q, %v", value, request.ProblemText(nil), err)
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
		if err != nil || len(request.Pairs) != 2 || request.ProblemText(nil) != want || request.Rejects() {
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
		"":             {"a": 0, "b": 0},
		"0":            {"a": 0, "b": 0},
		"10m":          {"a": 10 * time.Minute, "b": 10 * time.Minute},
		" 1h30m ":      {"a": 90 * time.Minute, "b": 90 * time.Minute},
		"10s b=9000h":  {"a": 10 * time.Second, "b": annotation.MaxRefresh},
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
