package watcher

import (
	"time"

	"k8s.io/utils/clock"

	"github.com/kv8s/curl-me-that/proto/pipeline/brokerclock"
)

// brokerTime is the clock for all that is compared with time stamps of the
// broker: that of the machine may be off by any amount. Until the broker has
// responded it is that of the machine. Tickers are the machine's.
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

// Since returns the time since t by the broker's clock.
func (c brokerTime) Since(t time.Time) time.Duration { return c.Now().Sub(t) }
