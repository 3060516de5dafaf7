// Package backoff slows down recurring repairs, because another controller that writes the same
// field would cause an endless loop at full speed.
package backoff

import "time"

const (
	// free is the number of consecutive repairs without a pause.
	free = 3
	// first and longest limit the growing pause between further repairs.
	first   = 10 * time.Second
	longest = 10 * time.Minute
	// forgotten is how long a key must stay unchanged before its repairs are forgotten.
	forgotten = 2 * longest
)

// Repairs counts consecutive repairs of one key (nil means none).
type Repairs struct {
	// Reported means that an Event has reported the slowdown.
	Reported bool

	last   time.Time
	number int
}

// Count counts a repair.
func (r *Repairs) Count(now time.Time) {
	if r.Over(now) {
		*r = Repairs{}
	}
	r.number++
	r.last = now
}

// Over reports whether the series has ended.
func (r *Repairs) Over(now time.Time) bool { return r == nil || now.Sub(r.last) > forgotten }

// Limited reports whether further repairs must wait.
func (r *Repairs) Limited(now time.Time) bool { return !r.Over(now) && r.number >= free }

// Wait returns the time until the next repair.
func (r *Repairs) Wait(now time.Time) time.Duration {
	if !r.Limited(now) {
		return 0
	}
	return max(0, min(first<<min(r.number-free, 10), longest)-now.Sub(r.last))
}

// Soonest returns the shorter of two waits, where 0 means none.
func Soonest(a, b time.Duration) time.Duration {
	if a == 0 || b > 0 && b < a {
		return b
	}
	return a
}
