// Package backoff slows repairs down that come again and again: another controller
// writes the same, and it would go on for ever at full speed.
package backoff

import "time"

const (
	// free is how many repairs in a row are made at once.
	free = 3
	// The pause between further ones grows from first to longest.
	first   = 10 * time.Second
	longest = 10 * time.Minute
	// forgotten is how long something must be left alone for its repairs to be
	// dropped.
	forgotten = 2 * longest
)

// Repairs of one thing in a row; nil: there were none.
type Repairs struct {
	// Reported: that they are slowed down was reported.
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

// Over reports whether the row has ended.
func (r *Repairs) Over(now time.Time) bool { return r == nil || now.Sub(r.last) > forgotten }

// Limited reports whether further repairs come at intervals.
func (r *Repairs) Limited(now time.Time) bool { return !r.Over(now) && r.number >= free }

// Wait returns how long the next repair has to wait; 0: not at all.
func (r *Repairs) Wait(now time.Time) time.Duration {
	if !r.Limited(now) {
		return 0
	}
	return max(0, min(first<<min(r.number-free, 10), longest)-now.Sub(r.last))
}

// Soonest returns the shorter of two waits; 0 is none.
func Soonest(a, b time.Duration) time.Duration {
	if a == 0 || b > 0 && b < a {
		return b
	}
	return a
}
