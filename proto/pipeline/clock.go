package pipeline

import (
	"context"
	"sync"
	"time"
)

const (
	// clockInterval is the time between requests for the broker's time, and clockRetry the time after a
	// failed one.
	clockInterval = time.Minute
	clockRetry    = time.Second
)

// Clock derives the broker's time from its time stamps and the monotonic clock of the process. Everything is
// scheduled on it, so a wrong wall clock does no harm. It is safe for concurrent use.
type Clock struct {
	created time.Time

	// known is closed when the broker has told its time.
	known chan struct{}
	once  sync.Once

	mu sync.Mutex
	// origin is the broker's time when the clock was created.
	origin time.Time
}

// NewClock returns a clock without a time.
func NewClock() *Clock { return &Clock{created: time.Now(), known: make(chan struct{})} }

// Observe advances the clock to a time stamp that was just received from the broker. It never moves
// the clock back, because a stamped message may have waited.
func (c *Clock) Observe(stamp time.Time) {
	origin := stamp.Add(-time.Since(c.created))
	c.mu.Lock()
	defer c.mu.Unlock()
	if origin.After(c.origin) {
		c.origin = origin
	}
}

// Set sets the broker's current time. It may move the clock back.
func (c *Clock) Set(now time.Time) {
	origin := now.Add(-time.Since(c.created))
	c.mu.Lock()
	defer c.mu.Unlock()
	c.origin = origin
	c.once.Do(func() { close(c.known) })
}

// Wait waits until the broker has told its time, and reports whether that was before done was closed.
// Until then the newest stamp may be hours old.
func (c *Clock) Wait(done <-chan struct{}) bool {
	select {
	case <-c.known:
		return true
	case <-done:
		return false
	}
}

// Now returns the broker's time. It is late by at most the time that the newest stamped message
// waited, and zero before the first stamp.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.origin.IsZero() {
		return time.Time{}
	}
	return c.origin.Add(time.Since(c.created))
}

// Run regularly asks the broker for its time, until ctx is done.
func (c *Clock) Run(ctx context.Context, ask func(context.Context) (time.Time, error)) {
	for {
		pause := clockRetry
		if now, err := ask(ctx); err == nil && !now.IsZero() {
			c.Set(now)
			pause = clockInterval
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}
