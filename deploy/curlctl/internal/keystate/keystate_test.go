package keystate_test

import (
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/keystate"
	"github.com/kv8s/curl-me-that/proto/condition"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
)

var now = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

func ago(d time.Duration) *timestamppb.Timestamp { return timestamppb.New(now.Add(-d)) }

const page = "https://example.com/x"

func TestConditionOfAWant(t *testing.T) {
	t.Parallel()
	const interval, timeout = 10 * time.Minute, v1.FailureClass_FAILURE_CLASS_TIMEOUT
	const long = condition.StaleIntervals * interval
	asked, set, next := now.Add(-time.Hour), now.Add(-time.Minute), now.Add(time.Minute)
	late := now.Add(-time.Minute - time.Second)
	for name, tt := range map[string]struct {
		due     *v1.Due
		at      time.Time
		untaken bool
		fired   bool
		want    keystate.Condition
	}{
		"not taken yet": {
			untaken: true,
			want:    keystate.Condition{State: keystate.Pending, Reason: keystate.Backlog, Since: asked},
		},
		"taken, fetched once": {want: keystate.Condition{State: keystate.Fetched}},
		"refreshed": {
			due: &v1.Due{FreshUntil: ago(-time.Minute)}, at: next,
			want: keystate.Condition{State: keystate.Fetched, Next: next, Checked: set},
		},
		"failing": {
			due: &v1.Due{
				Reported: timeout, StatusCode: 503, Attempts: 3, FirstFailedAt: ago(time.Minute),
				WaitsFor: v1.WaitsFor_WAITS_FOR_PAUSE,
			},
			at: next,
			want: keystate.Condition{
				State: keystate.Failing, Reason: "Timeout", Status: 503, Since: now.Add(-time.Minute), Next: next, Attempts: 3,
				Checked: set, WaitsFor: "pause of example.com",
			},
		},
		"failing, and its timer is late": {
			due: &v1.Due{Reported: timeout, FirstFailedAt: ago(time.Minute)}, at: late,
			want: keystate.Condition{
				State: keystate.Failing, Reason: "Timeout", Since: now.Add(-time.Minute), Next: late, Checked: set,
			},
		},
		"timer that is late": {
			due: &v1.Due{FreshUntil: ago(0), Cause: v1.Cause_CAUSE_PARKED}, at: late,
			want: keystate.Condition{State: keystate.Stale, Reason: keystate.Overdue, Since: late, Next: late},
		},
		"timer that is not late yet": {
			due: &v1.Due{FreshUntil: ago(0)}, at: late.Add(time.Second),
			want: keystate.Condition{State: keystate.Fetched, Next: late.Add(time.Second), Checked: set},
		},
		"parked, and stale": {
			due: &v1.Due{FreshUntil: ago(long), Cause: v1.Cause_CAUSE_PARKED}, at: next,
			want: keystate.Condition{State: keystate.Pending, Reason: keystate.Parked, Since: set, Next: next, Stale: true},
		},
		"stale": {
			due: &v1.Due{FreshUntil: ago(long)}, at: next,
			want: keystate.Condition{
				State: keystate.Stale, Reason: keystate.Outdated, Since: now.Add(-long), Next: next, Checked: set, Stale: true,
			},
		},
		"fired, and not taken": {
			due: &v1.Due{FreshUntil: ago(0)}, at: late, fired: true,
			want: keystate.Condition{State: keystate.Pending, Reason: keystate.Backlog, Since: late, Next: late},
		},
		"failing, and replayed": {
			due: &v1.Due{Reported: timeout, FirstFailedAt: ago(time.Minute)}, at: late, fired: true,
			want: keystate.Condition{State: keystate.Failing, Reason: "Timeout", Since: now.Add(-time.Minute), Next: late},
		},
		"failed, not reported yet": {
			due: &v1.Due{Attempts: 1, FirstFailedAt: ago(time.Minute), Cause: v1.Cause_CAUSE_RETRY}, at: next,
			want: keystate.Condition{
				State: keystate.Pending, Reason: keystate.Retry, Since: now.Add(-time.Minute), Next: next, Attempts: 1,
				Checked: set,
			},
		},
		"timer that was set without an attempt": {
			due: &v1.Due{}, at: next, want: keystate.Condition{State: keystate.Fetched, Next: next},
		},
	} {
		fetch := &keystate.Fetch{
			URL: page, Refresh: interval, Wanted: asked, Taken: !tt.untaken, Due: tt.due, At: tt.at, SetAt: set,
			Fired: tt.fired,
		}
		if got := keystate.Of(fetch, nil, now); got != tt.want {
			t.Errorf("%s:\n got %+v\nwant %+v", name, got, tt.want)
		}
	}
}

// The streams know the fetch, and the object knows the write. Neither alone makes a key ok.
func TestConditionOfAKey(t *testing.T) {
	t.Parallel()
	good := &v1.Due{FreshUntil: ago(-time.Minute)}
	bad := &v1.Due{Reported: v1.FailureClass_FAILURE_CLASS_TIMEOUT, FirstFailedAt: ago(time.Minute)}
	written := keystate.Write{URL: page, Written: true}
	failed := func(reason string) *keystate.Write {
		return &keystate.Write{URL: page, Reason: reason, Message: "sentence", Since: now, Attempts: 6}
	}
	for name, tt := range map[string]struct {
		due     *v1.Due
		none    bool
		write   *keystate.Write
		state   keystate.State
		reason  string
		message string
	}{
		"fetched and written": {due: good, write: &written, state: keystate.OK},
		"fetched, never written": {
			due: good, write: &keystate.Write{}, state: keystate.Pending,
			reason: keystate.NotWritten,
		},
		"another URL is written": {
			due:   good,
			write: &keystate.Write{URL: "https://example.com/old", Written: true}, state: keystate.Pending,
			reason: keystate.NotWritten,
		},
		"immutable": {
			due: good, write: failed("Immutable"), state: keystate.Refused,
			reason: "Immutable", message: "sentence",
		},
		"too large": {
			due: good, write: failed("BodyTooLarge"), state: keystate.Refused,
			reason: "BodyTooLarge", message: "sentence",
		},
		"refused by a policy": {
			due: good, write: failed("WriteFailed"), state: keystate.Refused,
			reason: "WriteFailed", message: "sentence",
		},
		"key of another owner": {
			none: true, write: failed("KeyExists"), state: keystate.Refused,
			reason: "KeyExists", message: "sentence",
		},
		"an edit has another URL": {
			due:   good,
			write: &keystate.Write{URL: "https://example.com/old", Reason: "Immutable"}, state: keystate.Pending,
			reason: keystate.NotWritten,
		},
		"fetch fails": {
			due: bad, write: failed("Timeout"), state: keystate.Failing, reason: "Timeout",
			message: "sentence",
		},
		"fetch fails, not reported yet": {due: bad, write: &written, state: keystate.Failing, reason: "Timeout"},
		"recovered, not reported yet": {
			due: good, write: failed("Timeout"), state: keystate.Pending,
			reason: keystate.NotWritten,
		},
		"failed without a next try": {
			write: failed("AddressDenied"), state: keystate.Failing,
			reason: "AddressDenied", message: "sentence",
		},
		"fails, and NATS is empty": {
			none: true, write: failed("BadStatus"), state: keystate.Failing,
			reason: "BadStatus", message: "sentence",
		},
		"not published yet": {
			none: true, write: &keystate.Write{}, state: keystate.Pending,
			reason: keystate.Unpublished,
		},
		"ignored": {
			none: true, write: &keystate.Write{Ignored: "it is suspended"},
			state: keystate.Ignored, message: "it is suspended",
		},
	} {
		fetch := &keystate.Fetch{
			URL: page, Refresh: time.Hour, Taken: true, Due: tt.due, At: now.Add(time.Minute),
			SetAt: now,
		}
		if tt.none {
			fetch = nil
		}
		got := keystate.Of(fetch, tt.write, now)
		if got.State != tt.state || got.Reason != tt.reason || got.Message != tt.message {
			t.Errorf("%s: %+v", name, got)
		}
		if tt.message != "" && tt.reason != "" && got.Attempts != 6 {
			t.Errorf("%s: %d attempts", name, got.Attempts)
		}
	}
}
