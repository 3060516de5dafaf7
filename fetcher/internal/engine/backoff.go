package engine

import "time"

// jitter is the jitter of a pause as a fraction, so that keys that failed together are not retried
// together.
const jitter = 0.2

// Backoff computes the pauses between failed attempts.
type Backoff struct {
	// Base is the pause after the first failure. Each further failure doubles it.
	Base time.Duration
	// Max is the maximum pause, before jitter.
	Max time.Duration
}

// Delay returns the pause after a number of failed attempts, with jitter. It is never shorter than
// retryAfter (RFC 9110 section 10.2.3). random is in [0, 1).
func (b Backoff) Delay(attempts uint32, retryAfter time.Duration, random float64) time.Duration {
	delay := b.Base
	for range min(max(attempts, 1)-1, 64) {
		delay = min(2*delay, b.Max)
	}
	if retryAfter > delay {
		return retryAfter + time.Duration(float64(delay)*jitter*random)
	}
	return max(retryAfter, jittered(delay, random))
}

// jittered returns d ±20 %. random is in [0, 1).
func jittered(d time.Duration, random float64) time.Duration {
	return d + time.Duration(float64(d)*jitter*(2*random-1))
}
