package duration_test

import (
	"testing"
	"time"

	"github.com/kv8s/curl-me-that/proto/duration"
)

func TestParse(t *testing.T) {
	const day = 24 * time.Hour
	for text, want := range map[string]time.Duration{
		"10m": 10 * time.Minute, "1h30m": 90 * time.Minute, "2d": 2 * day, "1d12h": 36 * time.Hour, "1.5d": 36 * time.Hour,
		"0": 0, "0d": 0, "-5m": -5 * time.Minute, "-1d": -day, "1d0s": day,
	} {
		got, err := duration.Parse(text)
		if err != nil || got != want {
			t.Errorf("Parse(%q) = %v, %v, want %v", text, got, err, want)
		}
	}
	for _, text := range []string{
		"", "d", "day", "2 d", "1h2d", "1d-2h", "1d2d", "1e3d", "Infd", "NaNd", "0x1d",
		"999999999999d", "+1d", "1d+2h", "10", "106751d24h",
	} {
		if got, err := duration.Parse(text); err == nil {
			t.Errorf("Parse(%q) = %v, want an error", text, got)
		}
	}
}

func TestParseInvertsFormat(t *testing.T) {
	for text, d := range map[string]time.Duration{
		"10m": 10 * time.Minute, "1h": time.Hour, "2d": 48 * time.Hour, "1d12h": 36 * time.Hour,
		"1h0m5s": time.Hour + 5*time.Second,
		"43ms":   43 * time.Millisecond, "0s": 0, "-2d": -48 * time.Hour, "1d500ms": 24*time.Hour + 500*time.Millisecond,
	} {
		if got := duration.Format(d); got != text {
			t.Errorf("Format(%v) = %q, want %q", d, got, text)
		}
		if again, err := duration.Parse(text); err != nil || again != d {
			t.Errorf("Parse(%q) = %v, %v, want %v", text, again, err, d)
		}
	}
}
