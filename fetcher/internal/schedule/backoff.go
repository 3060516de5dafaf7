package schedule

import (
	"errors"
	"time"
)

// jitter is the part by which a delay differs from the computed one, so that
// what failed together does not come back together.
const jitter = 0.2

// Backoff spaces the attempts of an unbroken row of failures.
type Backoff struct {
	// Base is the delay after the first failure. Each further one doubles it.
	Base time.Duration
	// Max bounds the delay.
	Max time.Duration
}

// Validate checks the bounds, and names the flag of one that is out of range.
func (b Backoff) Validate() error {
	switch {
	case b.Base <= 0:
		return errors.New("--retry-base must be positive")
	case b.Max < b.Base:
		return errors.New("--retry-max must not be below --retry-base")
	}
	return nil
}

// Delay returns how long to wait after the attempts-th failure, give or take a
// fifth. What the server asks for (Retry-After, RFC 9110 section 10.2.3) is
// never undercut. random is in [0, 1).
func (b Backoff) Delay(attempts uint32, retryAfter time.Duration, random float64) time.Duration {
	delay := b.Base
	for range min(max(attempts, 1)-1, 64) {
		delay = min(2*delay, b.Max)
	}
	if retryAfter > delay {
		return retryAfter + time.Duration(float64(delay)*jitter*random)
	}
	return Around(delay, random)
}

// Around returns a duration within a fifth of d. random is in [0, 1).
func Around(d time.Duration, random float64) time.Duration {
	return d + time.Duration(float64(d)*jitter*(2*random-1))
}
