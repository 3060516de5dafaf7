package engine

import (
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
)

func TestOnlyChangesOfStateAreLoggedAboveDebug(t *testing.T) {
	timeout := failedWith(v1.FailureClass_FAILURE_CLASS_TIMEOUT, 0)
	retrying := decision{outcome: outcomeRetry, failure: timeout, wait: 1900 * time.Millisecond}
	givingUp := decision{outcome: outcomeGaveUp, failure: timeout}
	failing := &v1.Due{FirstFailedAt: timestamppb.Now()}
	reported := &v1.Due{FirstFailedAt: failing.GetFirstFailedAt(), Reported: timeout.Class}
	notFound := decision{outcome: outcomeGaveUp, failure: failedWith(v1.FailureClass_FAILURE_CLASS_BAD_STATUS, 404)}
	gaveUpBefore := &v1.Due{FirstFailedAt: failing.GetFirstFailedAt(), Reported: timeout.Class, GaveUp: true}
	for _, tc := range []struct {
		past *v1.Due
		s    decision
		want string
	}{
		{nil, decision{outcome: outcomeContent}, "info fetched"},
		{nil, decision{outcome: outcomeRecovered}, "info recovered"},
		{nil, decision{outcome: outcomeUnmodified}, "debug unmodified"},
		{nil, retrying, "info fetch failed, retrying in 2s"},
		{
			failing,
			decision{outcome: outcomeRetry, failure: timeout, wait: 70 * time.Second},
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
