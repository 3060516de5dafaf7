package failure_test

import (
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/failure"
)

// A key is stale more than three intervals after its last successful fetch, and never without an
// interval.
func TestStale(t *testing.T) {
	t.Parallel()
	const interval = 10 * time.Minute
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	ago := func(d time.Duration) *timestamppb.Timestamp { return timestamppb.New(now.Add(-d)) }
	for name, tt := range map[string]struct {
		due      *v1.Due
		interval time.Duration
		want     bool
	}{
		"no interval":       {&v1.Due{FreshUntil: ago(time.Hour)}, 0, false},
		"nothing known":     {&v1.Due{}, interval, false},
		"was due long ago":  {&v1.Due{FreshUntil: ago((failure.StaleIntervals-1)*interval + 1)}, interval, true},
		"just not yet":      {&v1.Due{FreshUntil: ago((failure.StaleIntervals - 1) * interval)}, interval, false},
		"fails for long":    {&v1.Due{FirstFailedAt: ago(failure.StaleIntervals*interval + 1)}, interval, true},
		"not for so long":   {&v1.Due{FirstFailedAt: ago(failure.StaleIntervals * interval)}, interval, false},
		"fails, good since": {&v1.Due{FirstFailedAt: ago(time.Hour), FreshUntil: ago(0)}, interval, false},
	} {
		if got := failure.StaleDue(tt.due, tt.interval, now); got != tt.want {
			t.Errorf("%s: %t", name, got)
		}
	}
	if failure.FailsForLong(now.Add(-time.Hour), 0, now) || failure.FailsForLong(time.Time{}, interval, now) {
		t.Error("stale without an interval or a first failure")
	}
}
