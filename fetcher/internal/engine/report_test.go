package engine

import (
	"crypto/sha256"
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
		level, text := describe(&trigger{past: tc.past}, tc.s)
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

// BenchmarkPass measures what rules add to a fetch of 10 kB. It also prints the ratio to the digest of
// the body, which each fetch takes; see deploy/docs/rules.md.
func BenchmarkPass(b *testing.B) {
	one := `{"ip_prefix": "3.4.12.4/32", "region": "eu-west-1", "service": "AMAZON", "network_border_group": "eu-west-1"},`
	body := []byte(`{"version":3,"rules":[` + strings.TrimSuffix(strings.Repeat(one, 90), ",") + `]}`)
	e := &Engine{rules: new(rule.Evaluator)}
	for name, rules := range map[string][]string{
		"without rules": nil, "size of a list": {"size(json.rules) > 0"}, "version": {"json.version >= 3"},
		"start of a body": {`body.startsWith("{")`}, "size": {"size(body) * 2 > heldSize"},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			t := &trigger{want: &v1.Want{Expect: rules}, past: new(v1.Due)}
			fastest, digest := time.Hour, time.Hour // other programs use the machine, too
			for b.Loop() {
				began := time.Now()
				if e.pass(b.Context(), t, get.Response{Body: body}).response == nil {
					b.Fatal("refused")
				}
				passed := time.Now()
				sha256.Sum256(body)
				fastest, digest = min(fastest, passed.Sub(began)), min(digest, time.Since(passed))
			}
			b.ReportMetric(float64(fastest.Nanoseconds()), "min-ns/op")
			b.ReportMetric(float64(fastest)/float64(digest), "of-digest")
		})
	}
}
