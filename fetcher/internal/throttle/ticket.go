package throttle

import "time"

const (
	// firstPause is the pause of a host after its first request for one. Each further one doubles it, at most
	// maxDoublings times.
	firstPause   = time.Second
	maxDoublings = 16
	// maxPause is the maximum pause for the namespace of the GET, and maxPauseOthers for all others.
	maxPause       = time.Minute
	maxPauseOthers = 5 * time.Second
	// rememberFor is how long the pauses of an idle host are remembered.
	rememberFor = 2 * maxPause
	// maxHosts is the number of known hosts from which pauses are ignored. With a wildcard DNS name
	// one namespace could invent any number of hosts.
	maxHosts = 16 * 1024
	// meanWeight is the divisor of a new value in a moving average.
	meanWeight = 8
)

// Ticket is the place of a key at the throttle, from its request for a GET until its outcome is published.
type Ticket struct {
	lane   *lane
	urgent bool
	state  state
	// began is the start of the claim, and then of the GET.
	began time.Time
	// granted is closed when a request that waits in Acquire gets its slot.
	granted chan struct{}
}

// state of a Ticket.
type state int

const (
	arriving state = iota // the key was just delivered
	claiming              // the key was queued, has a slot of the process, and is being claimed
	claimed               // it needs a slot of the host, too
	getting               // it has both slots
	released              // its GET has ended
	ended                 // its outcome is published
)

// count adds to the counts of the lane, its host and its namespace.
func (t *Ticket) count(taken, claiming int) {
	for _, c := range []*counts{&t.lane.counts, &t.lane.host.counts, &t.lane.namespace.counts} {
		c.taken += taken
		c.claiming += claiming
	}
}

// Acquire takes the slot of the host for a started key, or returns what it has to wait for. It may itself wait
// for a moment.
func (t *Ticket) Acquire() *Wait {
	throttle := t.lane.throttle
	throttle.mu.Lock()
	defer throttle.mu.Unlock()
	now := time.Now()
	throttle.claimTime = average(throttle.claimTime, now.Sub(t.began))
	t.state = claimed
	return throttle.acquire(t, now)
}

// take takes a slot of the host, and of the process unless it has one.
func (t *Ticket) take(now time.Time) {
	if t.state == claimed {
		t.count(1, -1)
	} else {
		t.count(1, 0)
		t.lane.throttle.taken++
	}
	t.state, t.began, t.lane.host.lastTaken = getting, now, now
}

// Release returns the slot of the host after the GET. A second call does nothing.
func (t *Ticket) Release() {
	t.lane.throttle.mu.Lock()
	defer t.lane.throttle.mu.Unlock()
	t.advance(released)
}

// End also returns the slot of the process after the outcome is published, because the body uses
// memory until then. A second call does nothing, nor does a call on nil.
func (t *Ticket) End() {
	if t == nil {
		return
	}
	t.lane.throttle.mu.Lock()
	defer t.lane.throttle.mu.Unlock()
	t.advance(ended)
}

func (t *Ticket) advance(to state) {
	throttle, h, now := t.lane.throttle, t.lane.host, time.Now()
	switch {
	case t.state >= to:
		return
	case t.state < getting:
		t.count(0, -1)
	case t.state == getting:
		t.count(-1, 0)
		h.mean = average(h.mean, now.Sub(t.began))
	}
	t.state = to
	if to == ended {
		throttle.taken--
	}
	throttle.assignSlots(t.lane, now)
}

// Pause records that the host requested a pause. The caller delays the URL itself. The pause of the whole host is
// short, doubles with each request, and may get longer for the same namespace than for others.
func (t *Ticket) Pause(requested time.Duration) {
	lane, h, now := t.lane, t.lane.host, time.Now()
	throttle := lane.throttle
	throttle.mu.Lock()
	defer throttle.mu.Unlock()
	if len(throttle.hosts) >= maxHosts {
		return
	}
	if !t.began.Before(h.lastPaused) { // concurrent GETs count once
		h.pauses++
	}
	h.lastPaused = now
	own := min(requested, firstPause<<min(h.pauses-1, maxDoublings), maxPause)
	others := min(own, maxPauseOthers)
	lane.pausedUntil, h.pausedUntil = later(lane.pausedUntil, now.Add(own)), later(h.pausedUntil, now.Add(others))
	for _, wait := range []time.Duration{own, others, rememberFor} {
		time.AfterFunc(wait, func() {
			throttle.mu.Lock()
			defer throttle.mu.Unlock()
			throttle.assignSlots(lane, time.Now())
		})
	}
}

// Resume records a good response, which ends the pause of the host unless the GET began before the last pause.
func (t *Ticket) Resume() {
	throttle, h := t.lane.throttle, t.lane.host
	throttle.mu.Lock()
	defer throttle.mu.Unlock()
	if h.pauses == 0 || t.began.Before(h.lastPaused) {
		return
	}
	h.pauses, h.lastPaused, h.pausedUntil = 0, time.Time{}, time.Time{}
	for _, lane := range h.lanes {
		lane.pausedUntil = time.Time{}
	}
	throttle.assignSlots(t.lane, time.Now())
}

// average adds a duration to a moving average. Zero means none yet.
func average(mean, d time.Duration) time.Duration {
	d = max(d, time.Microsecond)
	if mean == 0 {
		return d
	}
	return mean + (d-mean)/meanWeight
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
