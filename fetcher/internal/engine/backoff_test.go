package engine_test

import (
	"math"
	"testing"
	"time"

	"github.com/kv8s/curl-me-that/fetcher/internal/engine"
)

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
