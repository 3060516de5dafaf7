package fetcher

import (
	"math"
	"strings"
	"testing"
)

func TestBodyLimit(t *testing.T) {
	for name, tc := range map[string]struct {
		maxBody, maxPayload, want int64
		fails                     bool
	}{
		"default of NATS":     {maxBody: 1_000_000, maxPayload: 1 << 20, want: 1_000_000},
		"less in max_payload": {maxBody: 1_000_000, maxPayload: 512 << 10, want: 496 << 10},
		"less in the flag":    {maxBody: 1000, maxPayload: 1 << 20, want: 1000},
		"no room for a body":  {maxBody: 1000, maxPayload: 16 << 10, fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := bodyLimit(tc.maxBody, tc.maxPayload)
			if got != tc.want || (err != nil) != tc.fails {
				t.Errorf("bodyLimit(%d, %d) = %d, %v", tc.maxBody, tc.maxPayload, got, err)
			}
		})
	}
}

func TestCheckMemory(t *testing.T) {
	for name, tc := range map[string]struct {
		concurrency int
		body, limit int64
		says        string
	}{
		"no limit":     {concurrency: 4096, body: 1 << 40, limit: math.MaxInt64},
		"32 in 64 MiB": {concurrency: 32, body: 1_000_000, limit: 64 << 20},
		"64 in 64 MiB": {concurrency: 64, body: 1_000_000, limit: 64 << 20, says: "needs 123 MiB and GOMEMLIMIT is " +
			"64 MiB"},
		"names the flags":  {concurrency: 64, body: 1_000_000, limit: 64 << 20, says: "lower --concurrency or --max-body"},
		"no overflow":      {concurrency: 4096, body: 1 << 62, limit: 64 << 20, says: "GOMEMLIMIT"},
		"exactly":          {concurrency: 1, body: 32 << 20, limit: 64 << 20},
		"one byte too big": {concurrency: 1, body: 32<<20 + 1, limit: 64 << 20, says: "GOMEMLIMIT"},
	} {
		t.Run(name, func(t *testing.T) {
			err := checkMemory(tc.concurrency, tc.body, tc.limit)
			if (err != nil) != (tc.says != "") || err != nil && !strings.Contains(err.Error(), tc.says) {
				t.Errorf("checkMemory() = %v, want %q", err, tc.says)
			}
		})
	}
}
