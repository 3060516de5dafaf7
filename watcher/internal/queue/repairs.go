package queue

import "time"

const (
	// freeRepairs is the number of consecutive repairs without a pause.
	freeRepairs = 3
	// firstPause and maxPause are the first and the maximum pause between further repairs.
	firstPause = 10 * time.Second
	maxPause   = 10 * time.Minute
	// forgetAfter is the time after which earlier repairs no longer count.
	forgetAfter = 2 * maxPause
)

// Repairs counts consecutive repairs of one key or object (nil: none), to slow them down: a conflict with another
// controller would cause a hot loop.
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

// Over reports whether the earlier repairs no longer count.
func (r *Repairs) Over(now time.Time) bool { return r == nil || now.Sub(r.last) > forgetAfter }

// Limited reports whether further repairs must wait.
func (r *Repairs) Limited(now time.Time) bool { return !r.Over(now) && r.number >= freeRepairs }

// Wait returns the time until the next repair.
func (r *Repairs) Wait(now time.Time) time.Duration {
	if !r.Limited(now) {
		return 0
	}
	return max(0, min(firstPause<<min(r.number-freeRepairs, 10), maxPause)-now.Sub(r.last))
}
