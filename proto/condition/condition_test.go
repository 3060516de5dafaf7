package condition_test

import (
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/kv8s/curl-me-that/proto/condition"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline/operate"
)

// now is when all conditions are looked at.
var now = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

// ago returns a time before now, as a message has it.
func ago(d time.Duration) *timestamppb.Timestamp { return timestamppb.New(now.Add(-d)) }

func TestConditionOfAWant(t *testing.T) {
	t.Parallel()
	const interval = 10 * time.Minute
	long := condition.StaleIntervals * interval
	asked, set, next := now.Add(-time.Hour), now.Add(-time.Minute), now.Add(time.Minute)
	late := now.Add(-condition.LateTimer - time.Second)
	want := operate.Want{Sequence: 7, At: asked, Want: &v1.Want{Url: "https://example.com/x", Refresh: durationpb.New(interval)}}
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
		want    condition.Condition
	}{
		"not taken yet":       {nil, 6, condition.Condition{State: condition.Waiting, Reason: condition.Backlog, Since: asked}},
		"taken, fetched once": {nil, 7, condition.Condition{State: condition.Well}},
		"timer of another want, not taken": {
			timer(next, &v1.Due{WantSequence: 5, Reported: timeout}), 6,
			condition.Condition{State: condition.Waiting, Reason: condition.Backlog, Since: asked},
		},
		"refreshed": {
			timer(next, &v1.Due{FreshUntil: ago(-time.Minute)}), 7,
			condition.Condition{State: condition.Well, Next: next, Checked: set},
		},
		"failing": {
			timer(next, &v1.Due{Reported: timeout, StatusCode: 503, Attempts: 3, FirstFailedAt: ago(time.Minute), WaitsFor: v1.WaitsFor_WAITS_FOR_PAUSE}), 7,
			condition.Condition{
				State: condition.Failing, Reason: "Timeout", Status: 503, Since: now.Add(-time.Minute), Next: next, Attempts: 3, Checked: set,
				WaitsFor: condition.WaitsFor(v1.WaitsFor_WAITS_FOR_PAUSE, want.Want.GetUrl()),
			},
		},
		"failing, and its timer is late": {
			timer(late, &v1.Due{Reported: timeout, FirstFailedAt: ago(time.Minute)}), 7,
			condition.Condition{State: condition.Failing, Reason: "Timeout", Since: now.Add(-time.Minute), Next: late, Checked: set},
		},
		"timer that is late": {
			timer(late, &v1.Due{FreshUntil: ago(0), Cause: v1.Cause_CAUSE_PARKED}), 7,
			condition.Condition{State: condition.IsStale, Reason: condition.Overdue, Since: late, Next: late},
		},
		"timer that is not late yet": {
			timer(late.Add(time.Second), &v1.Due{FreshUntil: ago(0)}), 7,
			condition.Condition{State: condition.Well, Next: late.Add(time.Second), Checked: set},
		},
		"parked, and stale": {
			timer(next, &v1.Due{FreshUntil: ago(long), Cause: v1.Cause_CAUSE_PARKED}), 7,
			condition.Condition{State: condition.Waiting, Reason: condition.Parked, Since: set, Next: next, Stale: true},
		},
		"stale": {
			timer(next, &v1.Due{FreshUntil: ago(long)}), 7,
			condition.Condition{State: condition.IsStale, Reason: condition.Outdated, Since: now.Add(-long), Next: next, Checked: set, Stale: true},
		},
		"fails for long, which was not reported": {
			timer(next, &v1.Due{FirstFailedAt: ago(long + time.Second)}), 7,
			condition.Condition{State: condition.Well, Since: now.Add(-long - time.Second), Next: next, Checked: set, Stale: true},
		},
		"timer that was set without a look": {timer(next, &v1.Due{}), 7, condition.Condition{State: condition.Well, Next: next}},
	} {
		if got := condition.Of(want, tt.timer, tt.handled, now); got != tt.want {
			t.Errorf("%s:\n got %+v\nwant %+v", name, got, tt.want)
		}
	}
}

// A key is stale after three intervals without a good fetch, to the second, and never
// without an interval.
func TestStale(t *testing.T) {
	t.Parallel()
	const interval = 10 * time.Minute
	for name, tt := range map[string]struct {
		due      *v1.Due
		interval time.Duration
		want     bool
	}{
		"no interval":       {&v1.Due{FreshUntil: ago(time.Hour)}, 0, false},
		"nothing known":     {&v1.Due{}, interval, false},
		"was due long ago":  {&v1.Due{FreshUntil: ago((condition.StaleIntervals-1)*interval + 1)}, interval, true},
		"just not yet":      {&v1.Due{FreshUntil: ago((condition.StaleIntervals - 1) * interval)}, interval, false},
		"fails for long":    {&v1.Due{FirstFailedAt: ago(condition.StaleIntervals*interval + 1)}, interval, true},
		"not for so long":   {&v1.Due{FirstFailedAt: ago(condition.StaleIntervals * interval)}, interval, false},
		"fails, good since": {&v1.Due{FirstFailedAt: ago(time.Hour), FreshUntil: ago(0)}, interval, false},
	} {
		if got := condition.Stale(tt.due, tt.interval, now); got != tt.want {
			t.Errorf("%s: %t", name, got)
		}
	}
	if condition.FailsForLong(now.Add(-time.Hour), 0, now) || condition.FailsForLong(time.Time{}, interval, now) {
		t.Error("without an interval or a start")
	}
}
