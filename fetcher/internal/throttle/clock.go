package throttle

import "time"

const (
	// firstGuess is what a GET is taken to last while no GET of a host has
	// ended.
	firstGuess = 2 * learn
	// overbook is by how much denser reservations are than slots come free: a
	// request that comes in vain costs less than a slot that is idle, and a
	// burst, in which most are made, slows down what is measured.
	overbook = 1.2
	// meanWeight is the part that one GET has in the moving average.
	meanWeight = 8
)

// meter measures how long slots are held.
type meter struct {
	held int
	// taken is when the last slot was taken.
	taken time.Time
	// returns counts the slots given back, and mean is the moving average of
	// how long they were held.
	returns uint64
	mean    time.Duration
}

func (m *meter) take(now time.Time) {
	m.held++
	m.taken = now
}

func (m *meter) giveBack(held time.Duration) {
	m.held--
	m.returns++
	if m.returns == 1 {
		m.mean = held
		return
	}
	m.mean += (held - m.mean) / meanWeight
}

// estimate is how long a slot will probably be held. While all are held, they
// are for at least as long as the last one has been, and if none has ever been
// given back, probably for half as long again.
func (m *meter) estimate(now time.Time, limit int) time.Duration {
	estimate := m.mean
	if m.returns == 0 {
		estimate = firstGuess
	}
	if m.held < limit {
		return estimate
	}
	age := now.Sub(m.taken)
	if m.returns == 0 {
		age += age / 2
	}
	return max(estimate, age)
}

// pace is how far apart the slots come free.
func (m *meter) pace(now time.Time, limit int) pace {
	return pace{Duration: m.estimate(now, limit) / time.Duration(limit), known: m.returns > 0}
}

// clock is a virtual clock that hands out reservations.
type clock struct {
	// next is when the next reservation is at the earliest.
	next time.Time
	// distance of the last ones.
	distance time.Duration
	// guessed counts the reservations made while the pace was not known.
	guessed int
}

// pace is the distance of reservations.
type pace struct {
	time.Duration
	// known reports whether it was measured.
	known bool
}

// reserve returns the next time, not before earliest. The pace is the distance
// to the one after it.
func (c *clock) reserve(now, earliest time.Time, p pace) time.Time {
	if p.known {
		p.Duration = time.Duration(float64(p.Duration) / overbook)
	}
	switch left := c.next.Sub(now); {
	case left <= 0:
		c.guessed = 0
	case p.known && c.guessed > 0:
		// Close the gaps that a guess has left.
		c.next = now.Add(min(left, time.Duration(c.guessed)*p.Duration))
		c.guessed = 0
	case p.Duration < c.distance/2:
		// What is reserved will take less time than was thought.
		c.next = now.Add(time.Duration(float64(left) * float64(p.Duration) / float64(c.distance)))
	}
	if !p.known {
		c.guessed++
	}
	c.distance = p.Duration
	at := c.next
	if at.Before(earliest) {
		at = earliest
	}
	c.next = at.Add(c.distance)
	return at
}

// booked reports whether there are reservations to come.
func (c *clock) booked(now time.Time) bool { return c.next.After(now) }
