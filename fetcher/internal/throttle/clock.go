package throttle

import "time"

const (
	// hostGuess is what a GET is taken to last at least while no GET of a host has
	// ended. What turns out to be put off for too long by it is advanced.
	hostGuess = 2 * time.Second
	// namespaceGuess is the same for a namespace. What it puts off is not advanced.
	namespaceGuess = 2 * learn
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
	// guess is what the mean is taken to be before the first is given back.
	guess time.Duration
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
// are for at least as long as the last one has been.
func (m *meter) estimate(now time.Time, limit int) time.Duration {
	estimate := m.mean
	if m.returns == 0 {
		estimate = m.guess
	}
	if m.held < limit {
		return estimate
	}
	return max(estimate, now.Sub(m.taken))
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
	// guesses are the reservations made while the pace was not known.
	guesses guesses
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
		c.learn(now, p.Duration)
		p.Duration = c.guesses.between(c.next, p.Duration)
	} else {
		c.guesses.distance, c.guesses.open = p.Duration, true
	}
	if left := c.next.Sub(now); p.Duration < c.distance/2 && left > 0 {
		// What is reserved will take less time than was thought.
		c.next = now.Add(time.Duration(float64(left) * float64(p.Duration) / float64(c.distance)))
	}
	c.distance = p.Duration
	at := later(c.next, earliest)
	c.next = at.Add(c.distance)
	return at
}

// learn is called with the first pace that was measured after guesses. If they
// have left gaps, what is reserved from now on closes them.
func (c *clock) learn(now time.Time, p time.Duration) {
	switch {
	case !c.guesses.open:
		return
	case p < c.guesses.distance:
		c.next, c.distance = now, p
	default:
		c.guesses.drop(0)
	}
	c.guesses.open = false
}

// advance returns an earlier time for the last of the guesses, if it has one to
// gain.
func (c *clock) advance(now, earliest time.Time, p pace) (w *Waiter, at time.Time, ok bool) {
	c.learn(now, p.Duration)
	last, ok := c.guesses.last()
	switch {
	case !ok || c.next.Sub(now) > advanced:
		return w, at, false
	case last.at.Sub(later(c.next, earliest)) < worthwhile:
		c.guesses.drop(0)
		return w, at, false
	}
	c.guesses.drop(len(c.guesses.of) - 1)
	return last.waiter, c.reserve(now, earliest, p), true
}

// queued reports whether there are reservations to come.
func (c *clock) queued(now time.Time) bool { return c.next.After(now) }
