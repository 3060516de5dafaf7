package engine

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/kv8s/curl-me-that/fetcher/internal/get"
	"github.com/kv8s/curl-me-that/fetcher/internal/throttle"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/rule"
)

func TestApplyRules(t *testing.T) {
	slow := strings.Repeat("[0,0,0,0,0,0,0,0,0,0].all(x,", 8) + "size(body)>0" + strings.Repeat(")", 8)
	const half = "size(body) * 2 > heldSize"
	for name, c := range map[string]struct {
		want        *v1.Want
		past        *v1.Due
		body        string
		notModified bool
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
		"a 304":       {want: &v1.Want{Expect: []string{"false"}}, notModified: true},
		"a selection": {want: &v1.Want{Select: "json.a"}, body: `{"a":[1]}`, passes: "[1]"},
		"a selection of nothing": {
			want: &v1.Want{Expect: []string{"true"}, Select: "json.b"}, body: `{"a":1}`, refused: "0 INAPPLICABLE, 0",
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := &Engine{rules: new(rule.Evaluator)}
			r := get.Response{Body: []byte(c.body), NotModified: c.notModified}
			end := e.applyRules(t.Context(), &trigger{want: c.want, due: c.past}, r)
			passes, refused := "", ""
			if end.response != nil {
				passes = string(end.response.Body)
			}
			if f := end.failure; f != nil {
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

func TestOnlyAHostThatAsksForAPauseIsPaused(t *testing.T) {
	for name, c := range map[string]struct {
		err    get.Error
		paused bool
	}{
		"429":                             {get.Error{StatusCode: 429}, true},
		"429 and Retry-After":             {get.Error{StatusCode: 429, RetryAfter: time.Minute}, true},
		"503 and Retry-After":             {get.Error{StatusCode: 503, RetryAfter: time.Minute}, true},
		"403 and Retry-After":             {get.Error{StatusCode: 403, RetryAfter: time.Minute}, true},
		"503":                             {get.Error{StatusCode: 503}, false},
		"202 and Retry-After":             {get.Error{StatusCode: 202, RetryAfter: time.Minute}, false},
		"429 of the target of a redirect": {get.Error{StatusCode: 429, Redirected: true}, false},
	} {
		t.Run(name, func(t *testing.T) {
			slots := throttle.New(throttle.Defaults())
			ticket, _ := slots.Acquire(throttle.Request{Host: "a", Namespace: "one"})
			observeLoad(ticket, &c.err)
			ticket.End()
			if _, wait := slots.Acquire(throttle.Request{Host: "a", Namespace: "two"}); (wait != nil) != c.paused {
				t.Errorf("the host makes others wait for %v", wait)
			}
		})
	}
}
