package engine

import (
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/kv8s/curl-me-that/fetcher/internal/get"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
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
