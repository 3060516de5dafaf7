// Package brokerclock has the time of the broker. All that is scheduled is
// scheduled on that clock, so that the wall clock of the machine, which may be
// wrong by any amount, is never asked.
package brokerclock

import (
	"context"
	"sync"
	"time"
)

const (
	// first and further are the pauses until the broker is asked for its time,
	// before and after its first response.
	first   = time.Second
	further = time.Minute
)

// Clock is the broker's time as it is known from what the broker has stamped,
// carried on by the monotonic clock of the process. It is safe for concurrent
// use.
type Clock struct {
	// elapsed is the monotonic time since the clock was made.
	elapsed func() time.Duration

	// known is closed when the broker has told its time.
	known chan struct{}
	once  sync.Once

	mu sync.Mutex
	// origin is the broker's time when the clock was made.
	origin time.Time
}

// New returns a clock that knows nothing yet. Elapsed is a monotonic clock; nil:
// that of the process.
func New(elapsed func() time.Duration) *Clock {
	if elapsed == nil {
		start := time.Now()
		elapsed = func() time.Duration { return time.Since(start) }
	}
	return &Clock{elapsed: elapsed, known: make(chan struct{})}
}

// Observe takes a time stamp of the broker into account that has just been
// received. What is stamped may have waited, so that a stamp only ever moves the
// clock forward.
func (c *Clock) Observe(stamp time.Time) {
	origin := stamp.Add(-c.elapsed())
	c.mu.Lock()
	defer c.mu.Unlock()
	if origin.After(c.origin) {
		c.origin = origin
	}
}

// Set takes the broker's time as of now. It may move the clock back.
func (c *Clock) Set(now time.Time) {
	origin := now.Add(-c.elapsed())
	c.mu.Lock()
	defer c.mu.Unlock()
	c.origin = origin
	c.once.Do(func() { close(c.known) })
}

// Wait waits until the broker has told its time, and reports whether that was before
// done was closed. Until then a stamp may be hours old.
func (c *Clock) Wait(done <-chan struct{}) bool {
	select {
	case <-c.known:
		return true
	case <-done:
		return false
	}
}

// Now returns the broker's time, late by at most what the youngest stamp has
// waited. It is zero while no stamp is known.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.origin.IsZero() {
		return time.Time{}
	}
	return c.origin.Add(c.elapsed())
}

// Run asks the broker for its time, now and then, until ctx is done.
func (c *Clock) Run(ctx context.Context, ask func(context.Context) (time.Time, error)) {
	for {
		pause := first
		if now, err := ask(ctx); err == nil && !now.IsZero() {
			c.Set(now)
			pause = further
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}
