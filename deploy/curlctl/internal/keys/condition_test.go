package keys_test

import (
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/keys"
	"github.com/kv8s/curl-me-that/deploy/curlctl/operate"
	"github.com/kv8s/curl-me-that/proto/condition"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
)

var now = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

func ago(d time.Duration) *timestamppb.Timestamp { return timestamppb.New(now.Add(-d)) }

func TestConditionOfAWant(t *testing.T) {
	t.Parallel()
	const interval = 10 * time.Minute
	long := condition.StaleIntervals * interval
	asked, set, next := now.Add(-time.Hour), now.Add(-time.Minute), now.Add(time.Minute)
	late := now.Add(-time.Minute - time.Second)
	want := operate.Want{Sequence: 7, At: asked, Want: &v1.Want{
		Url:     "https://example.com/x",
		Refresh: durationpb.New(interval),
	}}
	timer := func(at time.Time, due *v1.Due) *operate.Timer {
		if due.GetWantSequence() == 0 {
			due.WantSequence = want.Sequence
		}
		return &operate.Timer{Due: due, At: at, SetAt: set}
	}
	const timeout = v1.FailureClass_FAILURE_CLASS_TIMEOUT
	for name, tt := range map[string]struct {
		timer   *operate.Timer
		handled uint64
		want    keys.Condition
	}{
		"not taken yet":       {nil, 6, keys.Condition{State: keys.Waiting, Reason: keys.Backlog, Since: asked}},
		"taken, fetched once": {nil, 7, keys.Condition{State: keys.Well}},
		"timer of another want, not taken": {
			timer(next, &v1.Due{WantSequence: 5, Reported: timeout}), 6,
			keys.Condition{State: keys.Waiting, Reason: keys.Backlog, Since: asked},
		},
		"refreshed": {
			timer(next, &v1.Due{FreshUntil: ago(-time.Minute)}), 7,
			keys.Condition{State: keys.Well, Next: next, Checked: set},
		},
		"failing": {
			timer(next, &v1.Due{
				Reported: timeout, StatusCode: 503, Attempts: 3, FirstFailedAt: ago(time.Minute),
				WaitsFor: v1.WaitsFor_WAITS_FOR_PAUSE,
			}), 7,
			keys.Condition{
				State: keys.Failing, Reason: "Timeout", Status: 503, Since: now.Add(-time.Minute), Next: next, Attempts: 3,
				Checked:  set,
				WaitsFor: condition.WaitsFor(v1.WaitsFor_WAITS_FOR_PAUSE, want.Want.GetUrl()),
			},
		},
		"failing, and its timer is late": {
			timer(late, &v1.Due{Reported: timeout, FirstFailedAt: ago(time.Minute)}), 7,
			keys.Condition{State: keys.Failing, Reason: "Timeout", Since: now.Add(-time.Minute), Next: late, Checked: set},
		},
		"timer that is late": {
			timer(late, &v1.Due{FreshUntil: ago(0), Cause: v1.Cause_CAUSE_PARKED}), 7,
			keys.Condition{State: keys.Stale, Reason: keys.Overdue, Since: late, Next: late},
		},
		"timer that is not late yet": {
			timer(late.Add(time.Second), &v1.Due{FreshUntil: ago(0)}), 7,
			keys.Condition{State: keys.Well, Next: late.Add(time.Second), Checked: set},
		},
		"parked, and stale": {
			timer(next, &v1.Due{FreshUntil: ago(long), Cause: v1.Cause_CAUSE_PARKED}), 7,
			keys.Condition{State: keys.Waiting, Reason: keys.Parked, Since: set, Next: next, Stale: true},
		},
		"stale": {
			timer(next, &v1.Due{FreshUntil: ago(long)}), 7,
			keys.Condition{
				State: keys.Stale, Reason: keys.Outdated, Since: now.Add(-long), Next: next, Checked: set,
				Stale: true,
			},
		},
		"fails for long, which was not reported": {
			timer(next, &v1.Due{FirstFailedAt: ago(long + time.Second)}), 7,
			keys.Condition{State: keys.Well, Since: now.Add(-long - time.Second), Next: next, Checked: set, Stale: true},
		},
		"timer that was set without a look": {timer(next, &v1.Due{}), 7, keys.Condition{State: keys.Well, Next: next}},
	} {
		if got := keys.ConditionOf(want, tt.timer, tt.handled, now); got != tt.want {
			t.Errorf("%s:\n got %+v\nwant %+v", name, got, tt.want)
		}
	}
}
