package engine

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/kv8s/curl-me-that/fetcher/internal/get"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/rule"
)

func failedWith(class v1.FailureClass, code int) failure {
	return failure{Error: get.Error{Class: class, StatusCode: code}}
}

func TestOnlyChangesOfStateAreLoggedAboveDebug(t *testing.T) {
	timeout := failedWith(v1.FailureClass_FAILURE_CLASS_TIMEOUT, 0)
	retrying := step{outcome: retry, failure: timeout, wait: 1900 * time.Millisecond}
	givingUp := step{outcome: gaveUp, failure: timeout}
	failing := &v1.Due{FirstFailedAt: timestamppb.Now()}
	reported := &v1.Due{FirstFailedAt: failing.GetFirstFailedAt(), Reported: timeout.Class}
	notFound := step{outcome: gaveUp, failure: failedWith(v1.FailureClass_FAILURE_CLASS_BAD_STATUS, 404)}
	gaveUpBefore := &v1.Due{FirstFailedAt: failing.GetFirstFailedAt(), Reported: timeout.Class, GaveUp: true}
	for _, tc := range []struct {
		past *v1.Due
		s    step
		want string
	}{
		{nil, step{outcome: content}, "info fetched"},
		{nil, step{outcome: recovered}, "info recovered"},
		{nil, step{outcome: unmodified}, "debug unchanged"},
		{nil, retrying, "info fetch failed, retrying in 2s"},
		{failing, step{outcome: retry, failure: timeout, wait: 70 * time.Second}, "debug fetch failed, retrying in 1m10s"},
		{reported, givingUp, "warn gave up"},
		{gaveUpBefore, givingUp, "debug gave up"},
		{gaveUpBefore, notFound, "warn gave up"},
	} {
		level, text := logLine(&trigger{earlier: tc.past}, tc.s)
		if got := level.String() + " " + text; got != tc.want {
			t.Errorf("got %q, want %q", got, tc.want)
		}
	}
}

func TestSpellingsOfAHostShareItsSlots(t *testing.T) {
	for _, spellings := range [][]string{
		{"http://data.example.com/a", "HTTP://DATA.example.com.:80/b", "http://data.example.com.?c"},
		{"https://[::1]/", "https://[0:0:0:0:0:0:0:1]:443/"},
		{"http://192.0.2.1:8080/", "http://[::ffff:192.0.2.1]:8080/", "http://[::ffff:c000:201]:8080/"},
	} {
		for _, s := range spellings {
			if got, want := authority(s), authority(spellings[0]); got != want || got == "" {
				t.Errorf("authority(%q) = %q, want %q", s, got, want)
			}
		}
	}
	for _, denied := range []string{"", "ftp://a.example.com/", "http://me@a.example.com/", "http://a b/"} {
		if got := authority(denied); got != "" {
			t.Errorf("authority(%q) = %q", denied, got)
		}
	}
}

func TestPass(t *testing.T) {
	slow := strings.Repeat("[0,0,0,0,0,0,0,0,0,0].all(x,", 8) + "size(body)>0" + strings.Repeat(")", 8)
	const half = "size(body) * 2 > heldSize"
	for name, c := range map[string]struct {
		want *v1.Want
		past *v1.Due
		body string
		// passes is the accepted body, or refused the failure.
		passes, refused string
	}{
		"no rules":    {want: &v1.Want{}, body: "hello", passes: "hello"},
		"a good body": {want: &v1.Want{Expect: []string{"size(json.a) > 0", "true"}}, body: `{"a":[1]}`, passes: `{"a":[1]}`},
		"the second rule": {
			want: &v1.Want{Expect: []string{"true", "size(json.x) > 0"}}, body: "<html>", refused: "2 NOT_JSON, 0",
		},
		"a slow rule": {want: &v1.Want{Expect: []string{slow}}, body: "body", refused: "1 COSTLY, 0"},
		"a large body": {
			want: &v1.Want{Expect: []string{"true"}}, body: strings.Repeat("x", rule.MaxBody+1),
			refused: fmt.Sprint("1 UNSPECIFIED, ", rule.MaxBody),
		},
		"the size of the want": {
			want: &v1.Want{Expect: []string{half}, HeldSize: 12}, body: "four", refused: "1 UNSPECIFIED, 0",
		},
		"the size of the last body": {
			want: &v1.Want{Expect: []string{half}, HeldSize: 12}, past: &v1.Due{Cached: &v1.Cached{Size: 7}}, body: "four",
			passes: "four",
		},
		"a selection": {want: &v1.Want{Select: "json.a"}, body: `{"a":[1]}`, passes: "[1]"},
	} {
		t.Run(name, func(t *testing.T) {
			e := &Engine{rules: new(rule.Evaluator)}
			h := e.pass(t.Context(), &trigger{want: c.want, earlier: c.past}, get.Response{Body: []byte(c.body)})
			passes, refused := "", ""
			if h.response != nil {
				passes = string(h.response.Body)
			}
			if f := h.failed; f != nil {
				detail := strings.TrimPrefix(f.Detail.String(), "FAILURE_DETAIL_")
				refused = fmt.Sprintf("%d %s, %d", f.rule, detail, f.Limit)
				if !strings.HasPrefix(c.body, string(f.Snippet)) || len(f.Snippet) == 0 {
					t.Errorf("the dead letter has the body %q", f.Snippet)
				}
			}
			if passes != c.passes || refused != c.refused {
				t.Errorf("passes %.20q, refused %q", passes, refused)
			}
		})
	}
}
