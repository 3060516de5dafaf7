package schedule_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/kv8s/curl-me-that/fetcher/internal/schedule"
)

const url = "https://data.example.com/a"

func TestRefreshComesOncePerInterval(t *testing.T) {
	const interval = 10 * time.Minute
	for _, jitter := range []float64{0, 0.05, 0.25} {
		r := schedule.Refresh{Min: time.Second, Max: 24 * time.Hour, Jitter: jitter}
		at := r.Next(time.Unix(1_800_000_000, 0), url, interval, 0)
		for range 1000 {
			// The timer fires a little late, and the GET takes a while.
			next := r.Next(at.Add(12*time.Second), url, interval, 0)
			tolerance := time.Duration(float64(interval) * jitter)
			if gap := next.Sub(at); gap < interval-tolerance || gap > interval+tolerance {
				t.Fatalf("jitter %v: refresh after %s instead of %s", jitter, gap, interval)
			}
			at = next
		}
	}
}

func TestFirstRefreshComesWithinOneAndAHalfIntervals(t *testing.T) {
	const interval = time.Hour
	r := schedule.Refresh{Min: time.Second, Max: 24 * time.Hour}
	for i := range 1000 {
		now := time.Unix(1_800_000_000+int64(i)*17, 0)
		if gap := r.Next(now, url, interval, 0).Sub(now); gap < interval/2 || gap >= 3*interval/2 {
			t.Fatalf("first refresh after %s", gap)
		}
	}
}

func TestObjectsWithTheSameURLAreFetchedTogether(t *testing.T) {
	r := schedule.Refresh{Min: time.Second, Max: 24 * time.Hour, Jitter: 0.05}
	now := time.Unix(1_800_000_000, 0)
	times := map[time.Time]int{}
	for i := range 100 { // fetched at different moments of one minute
		times[r.Next(now.Add(time.Duration(i)*600*time.Millisecond), url, 10*time.Minute, 0)]++
	}
	if len(times) > 2 {
		t.Errorf("objects are fetched at %d different times", len(times))
	}
}

func TestDifferentURLsSpreadOverTheInterval(t *testing.T) {
	const interval, parts, each = 10 * time.Minute, 10, 200
	r := schedule.Refresh{Min: time.Second, Max: 24 * time.Hour}
	now := time.Unix(1_800_000_000, 0)
	var count [parts]int
	for i := range parts * each {
		at := r.Next(now, fmt.Sprintf("https://data.example.com/%d", i), interval, 0)
		count[at.UnixNano()%int64(interval)*parts/int64(interval)]++
	}
	for part, n := range count {
		if n < each/2 || n > 2*each {
			t.Errorf("part %d of the interval has %d of %d URLs", part, n, parts*each)
		}
	}
}

func TestRefreshBounds(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	r := schedule.Refresh{Min: time.Minute, Max: 24 * time.Hour}
	for name, tc := range map[string]struct {
		interval, maxAge time.Duration
		from, to         time.Duration
	}{
		"interval below the minimum":   {time.Second, 0, 30 * time.Second, 90 * time.Second},
		"fresh for less than interval": {time.Hour, 30 * time.Minute, 30 * time.Minute, 90 * time.Minute},
		"fresh for longer":             {10 * time.Minute, 3 * time.Hour, 3 * time.Hour, 3*time.Hour + 10*time.Minute},
		"fresh for ever":               {10 * time.Minute, math.MaxInt64, 24*time.Hour - 10*time.Minute, 24 * time.Hour},
		"interval above the maximum":   {48 * time.Hour, math.MaxInt64, 24 * time.Hour, 72 * time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			for i := range 100 {
				gap := r.Next(now, fmt.Sprint(url, i), tc.interval, tc.maxAge).Sub(now)
				if gap < tc.from || gap > tc.to {
					t.Fatalf("next after %s, want from %s to %s", gap, tc.from, tc.to)
				}
			}
		})
	}
}
