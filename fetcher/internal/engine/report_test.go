package engine

import (
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
)

func TestOnlyChangesOfStateAreLoggedAboveDebug(t *testing.T) {
	timeout := failedWith(v1.FailureClass_FAILURE_CLASS_TIMEOUT, 0)
	retrying := reaction{outcome: retry, failure: timeout, wait: 1900 * time.Millisecond}
	givingUp := reaction{outcome: gaveUp, failure: timeout}
	failing := &v1.Due{FirstFailedAt: timestamppb.Now()}
	reported := &v1.Due{FirstFailedAt: failing.GetFirstFailedAt(), Reported: timeout.Class}
	notFound := reaction{outcome: gaveUp, failure: failedWith(v1.FailureClass_FAILURE_CLASS_BAD_STATUS, 404)}
	gaveUpBefore := &v1.Due{FirstFailedAt: failing.GetFirstFailedAt(), Reported: timeout.Class, GaveUp: true}
	for _, tc := range []struct {
		past *v1.Due
		s    reaction
		want string
	}{
		{nil, reaction{outcome: content}, "info fetched"},
		{nil, reaction{outcome: recovered}, "info recovered"},
		{nil, reaction{outcome: unmodified}, "debug unmodified"},
		{nil, retrying, "info fetch failed, retrying in 2s"},
		{
			failing,
			reaction{outcome: retry, failure: timeout, wait: 70 * time.Second},
			"debug fetch failed, retrying in 1m10s",
		},
		{reported, givingUp, "warn gave up"},
		{gaveUpBefore, givingUp, "debug gave up"},
		{gaveUpBefore, notFound, "warn gave up"},
	} {
		level, text := logLine(&trigger{due: tc.past}, tc.s)
		if got := level.String() + " " + text; got != tc.want {
			t.Errorf("got %q, want %q", got, tc.want)
		}
	}
}
