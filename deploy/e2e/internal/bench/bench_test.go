package bench

import (
	"strings"
	"testing"
	"time"
)

func TestErrorsNameTheInvalidFlag(t *testing.T) {
	o := Options{N: 2, Rounds: 1, Timeout: time.Second, Bin: t.TempDir()}
	if err := o.Complete(); err == nil || !strings.Contains(err.Error(), "run make build first") {
		t.Errorf("got %v", err)
	}
	if _, err := parse("latencies", "1s,-1s", time.ParseDuration); err == nil ||
		!strings.Contains(err.Error(), "-latencies") {
		t.Errorf("got %v", err)
	}
}
