package throttle

import "time"

const (
	// firstPause is the first pause after a refusal. It doubles with each further one, maxDoublings
	// times at most.
	firstPause   = time.Second
	maxDoublings = 16
	// maxPause bounds the pause of a host for the namespace whose request it has refused, and
	// maxPauseOthers that for all other namespaces.
	maxPause       = time.Minute
	maxPauseOthers = 5 * time.Second
	// rememberFor is how long the refusals of a host count.
	rememberFor = 2 * maxPause
	// maxPaused is the maximum number of paused hosts: with names under a wildcard one namespace
	// could invent any number of them.
	maxPaused = 16 * 1024
	// meanWeight is the divisor for one duration in a moving average.
	meanWeight = 8
)

// Slot is the permission to make one GET, or a request for it.
type Slot struct {
	tenant *tenant
	urgent bool
	state  state
	// began is the start of the claim, and then of the GET.
	began time.Time
	// granted is closed when a request that waits in memory gets its slot.
	granted chan struct{}
}

// state of a slot.
type state int

const (
	arriving state = iota // the key was delivered
	starting              // the key was queued, is being claimed, and has a slot of the process
	claimed               // it needs one of the host, too
	getting               // it has both
	released              // its GET has ended
	ended                 // its outcome is published
)

// count changes how many slots of the host are held and expected.
func (s *Slot) count(held, claiming int) {
	for _, c := range []*counts{&s.tenant.counts, &s.tenant.host.counts, &s.tenant.namespace.counts} {
		c.held += held
		c.claiming += claiming
	}
}

// take takes a slot of the host, and of the process unless it has one.
func (s *Slot) take(now time.Time) {
	if s.state == claimed {
		s.count(1, -1)
	} else {
		s.count(1, 0)
		s.tenant.throttle.held++
	}
	s.state, s.began, s.tenant.host.taken = getting, now, now
}

// Release gives the slot of the host back once the GET has ended. A second call does nothing.
func (s *Slot) Release() { s.advance(released) }

// End gives the slot of the process back, too, once the outcome is published: until then the body
// takes memory. A second call does nothing, and neither does one without a slot.
func (s *Slot) End() {
	if s != nil {
		s.advance(ended)
	}
}

func (s *Slot) advance(to state) {
	t, h, now := s.tenant.throttle, s.tenant.host, time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case s.state >= to:
		return
	case s.state < getting:
		s.count(0, -1)
	case s.state == getting:
		s.count(-1, 0)
		h.mean = average(h.mean, now.Sub(s.began))
	}
	if s.state = to; to == ended {
		t.held--
	}
	t.settle(s.tenant, now)
}

// Pause notes that the host has refused the GET and asks for a pause. The caller delays the URL
// itself. Others on the host wait for a short time only, which grows with each refusal: longer for
// the same namespace than for others.
func (s *Slot) Pause(asked time.Duration) {
	n, h, now := s.tenant, s.tenant.host, time.Now()
	t := n.throttle
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.hosts) >= maxPaused {
		return
	}
	if !s.began.Before(h.refused) { // refusals of GETs that were under way count once
		h.refusals++
	}
	h.refused = now
	own := min(asked, firstPause<<min(h.refusals-1, maxDoublings), maxPause)
	others := min(own, maxPauseOthers)
	n.restsUntil, h.restsUntil = later(n.restsUntil, now.Add(own)), later(h.restsUntil, now.Add(others))
	for _, wait := range []time.Duration{own, others, rememberFor} {
		time.AfterFunc(wait, func() {
			t.mu.Lock()
			defer t.mu.Unlock()
			t.settle(n, time.Now())
		})
	}
}

// Resume records that the host has responded well, which ends its pause unless the GET began
// before that.
func (s *Slot) Resume() {
	t, h := s.tenant.throttle, s.tenant.host
	t.mu.Lock()
	defer t.mu.Unlock()
	if h.refusals == 0 || s.began.Before(h.refused) {
		return
	}
	h.refusals, h.refused, h.restsUntil = 0, time.Time{}, time.Time{}
	for _, n := range h.tenants {
		n.restsUntil = time.Time{}
	}
	t.settle(s.tenant, time.Now())
}

// average adds a duration to a moving average (0: there is none yet).
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
