package engine_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/kv8s/curl-me-that/fetcher/internal/engine"
)

const aURL = "https://data.example.com/a"

func TestRefreshComesOncePerInterval(t *testing.T) {
	const interval = 10 * time.Minute
	for _, jitter := range []float64{0, 0.05, 0.25} {
		r := engine.Refresh{Min: time.Second, Jitter: jitter}
		at := r.Next(time.Unix(1_800_000_000, 0), aURL, interval)
		for range 1000 {
			// The timer fires a little late, and the GET takes a while.
			next := r.After(at.Add(12*time.Second), aURL, interval)
			tolerance := time.Duration(float64(interval) * jitter)
			if gap := next.Sub(at); gap < interval-tolerance || gap > interval+tolerance {
				t.Fatalf("jitter %v: refresh after %s instead of %s", jitter, gap, interval)
			}
			at = next
		}
	}
}

func TestNoRefreshComesLaterThanTheIntervalAndItsJitter(t *testing.T) {
	for _, interval := range []time.Duration{10 * time.Second, time.Hour, 24 * time.Hour, 365 * 24 * time.Hour} {
		for _, jitter := range []float64{0, 0.05, 0.25} {
			r := engine.Refresh{Min: time.Second, Jitter: jitter}
			limit := interval + time.Duration(float64(interval)*jitter)
			for i := range 1000 {
				now := time.Unix(1_800_000_000+int64(i)*17, int64(i)*1_234_567)
				pending := r.Next(now, aURL, interval)
				if gap := pending.Sub(now); gap <= 0 || gap > limit {
					t.Fatalf("%s, jitter %v: next slot after %s", interval, jitter, gap)
				}
				after := r.After(now, aURL, interval)
				if gap := after.Sub(now); gap < interval/4 || gap > limit {
					t.Fatalf("%s, jitter %v: refresh after %s", interval, jitter, gap)
				}
				// A want that is published again does not delay the slot.
				again := now.Add(pending.Sub(now) * time.Duration(i) / 1000)
				if next := r.Next(again, aURL, interval); !next.Equal(pending) {
					t.Fatalf("%s, jitter %v: the slot moved from %s to %s", interval, jitter, pending, next)
				}
			}
		}
	}
}

func TestALateFetchReturnsToTheSlotsOfItsURL(t *testing.T) {
	const interval = time.Minute
	r := engine.Refresh{Min: time.Second, Jitter: 0.05}
	slot := r.Next(time.Unix(1_800_000_000, 0), aURL, interval)
	at := r.After(slot.Add(50*time.Second), aURL, interval)
	for range 2 {
		at = r.After(at.Add(time.Second), aURL, interval)
	}
	if want := r.Next(at.Add(-time.Second), aURL, interval); !at.Equal(want) {
		t.Errorf("refresh at %s instead of %s", at, want)
	}
}

func TestObjectsWithTheSameURLAreFetchedTogether(t *testing.T) {
	r := engine.Refresh{Min: time.Second, Jitter: 0.05}
	now := time.Unix(1_800_000_000, 0)
	times := map[time.Time]int{}
	for i := range 100 { // fetched at different moments of one minute
		times[r.After(now.Add(time.Duration(i)*600*time.Millisecond), aURL, 10*time.Minute)]++
	}
	if len(times) > 2 {
		t.Errorf("objects are fetched at %d different times", len(times))
	}
}

func TestDifferentURLsSpreadOverTheInterval(t *testing.T) {
	const interval, parts, each = 10 * time.Minute, 10, 200
	r := engine.Refresh{Min: time.Second}
	now := time.Unix(1_800_000_000, 0)
	var count [parts]int
	for i := range parts * each {
		aURL := fmt.Sprintf("https://data.example.com/%d", i)
		at := r.After(r.After(now, aURL, interval), aURL, interval)
		count[at.UnixNano()%int64(interval)*parts/int64(interval)]++
	}
	for part, n := range count {
		if n < each/2 || n > 2*each {
			t.Errorf("part %d of the interval has %d of %d URLs", part, n, parts*each)
		}
	}
}

func TestAnIntervalBelowTheMinimumIsRaised(t *testing.T) {
	r, now := engine.Refresh{Min: time.Minute}, time.Unix(1_800_000_000, 0)
	if got, want := r.After(now, aURL, time.Second), r.After(now, aURL, time.Minute); !got.Equal(want) {
		t.Errorf("After() = %s, want %s", got, want)
	}
}

func TestBackoffDelay(t *testing.T) {
	b := engine.Backoff{Base: 2 * time.Second, Max: 5 * time.Minute}
	const middle, low, high = 0.5, 0.0, 0.999999
	for name, tc := range map[string]struct {
		attempts   uint32
		retryAfter time.Duration
		random     float64
		from, to   time.Duration
	}{
		"first":                  {1, 0, middle, 2 * time.Second, 2 * time.Second},
		"zero counts as first":   {0, 0, middle, 2 * time.Second, 2 * time.Second},
		"second":                 {2, 0, middle, 4 * time.Second, 4 * time.Second},
		"fifth":                  {5, 0, middle, 32 * time.Second, 32 * time.Second},
		"capped":                 {9, 0, middle, 5 * time.Minute, 5 * time.Minute},
		"never overflows":        {math.MaxUint32, 0, middle, 5 * time.Minute, 5 * time.Minute},
		"a fifth less":           {1, 0, low, 1600 * time.Millisecond, 1600 * time.Millisecond},
		"a fifth more":           {1, 0, high, 2399 * time.Millisecond, 2400 * time.Millisecond},
		"as the server requests": {1, time.Minute, low, time.Minute, time.Minute},
		"with jitter after that": {1, time.Minute, high, time.Minute, time.Minute + 400*time.Millisecond},
		"server requests less":   {5, time.Second, middle, 32 * time.Second, 32 * time.Second},
		"jitter below that":      {5, 32 * time.Second, low, 32 * time.Second, 32 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			got := b.Delay(tc.attempts, tc.retryAfter, tc.random)
			if got < tc.from || got > tc.to {
				t.Errorf("Delay(%d, %s, %v) = %s, want from %s to %s", tc.attempts, tc.retryAfter, tc.random, got, tc.from, tc.to)
			}
		})
	}
}
