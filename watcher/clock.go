package watcher

import (
	"time"

	"k8s.io/utils/clock"

	"github.com/kv8s/curl-me-that/proto/pipeline/brokerclock"
)

// brokerTime is the clock to compare with the broker's time stamps, because the machine's clock may
// be wrong. Until the broker has responded, it is the machine's clock. Tickers are the machine's.
type brokerTime struct {
	clock.WithTicker
	broker *brokerclock.Clock
}

// Now returns the broker's time.
func (c brokerTime) Now() time.Time {
	if now := c.broker.Now(); !now.IsZero() {
		return now
	}
	return c.WithTicker.Now()
}

// Since returns the time since t on the broker's clock.
func (c brokerTime) Since(t time.Time) time.Duration { return c.Now().Sub(t) }
