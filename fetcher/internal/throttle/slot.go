package throttle

import "time"

// firstPause is the first pause after a refusal. It doubles with each further one, maxDoublings
// times at most.
const (
	firstPause   = time.Second
	maxDoublings = 16
)

// Slot is the permission to make one GET.
type Slot struct {
	throttle *Throttle
	tenant   *tenant
	began    time.Time
	state    state
}

// state of a slot.
type state int

const (
	claiming state = iota // it has no slot of the host yet
	getting               // it has one
	released              // its GET has ended
	ended                 // its outcome is published
)

// count changes how many slots of the host are held and expected.
func (s *Slot) count(held, claiming int) {
	for _, c := range []*counts{&s.tenant.counts, &s.tenant.host.counts} {
		c.held += held
		c.claiming += claiming
	}
	s.tenant.namespace.held += held + claiming
}

// Release gives the slot of the host back once the GET has ended. A second call does nothing.
func (s *Slot) Release() { s.advance(released) }

// End gives the slot of the process back, too, once the outcome is published: until then the body
// takes memory. A second call does nothing.
func (s *Slot) End() { s.advance(ended) }

func (s *Slot) advance(to state) {
	t, n, h := s.throttle, s.tenant, s.tenant.host
	t.mu.Lock()
	defer t.mu.Unlock()
	if s.state >= to {
		return
	}
	now := t.deps.Now()
	switch s.state {
	case claiming:
		s.count(0, -1)
	case getting:
		s.count(-1, 0)
		h.mean = average(h.mean, now.Sub(s.began))
	default:
	}
	if s.state = to; to == ended {
		t.held--
		n.placed--
	}
	t.free(h, now)
	n.forget(now)
}

// Pause notes that the host has refused the GET and asks for a pause. The caller delays the URL
// itself. Others on the host wait for a short time only, which grows with each refusal: longer for
// the same namespace than for others.
func (s *Slot) Pause(asked time.Duration) {
	t, n, h := s.throttle, s.tenant, s.tenant.host
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.hosts) >= maxPaused {
		return
	}
	if !s.began.Before(h.refused) { // refusals of GETs that were under way count once
		h.refusals++
	}
	now, wait := t.deps.Now(), min(asked, firstPause<<min(h.refusals-1, maxDoublings))
	h.refused = now
	for _, rest := range []struct {
		until *time.Time
		wait  time.Duration
	}{{&h.restsUntil, min(wait, t.cfg.MaxPauseOthers)}, {&n.restsUntil, min(wait, t.cfg.MaxPause)}} {
		*rest.until = later(*rest.until, now.Add(rest.wait))
		time.AfterFunc(rest.wait, func() { t.locked(func() { t.free(h, t.deps.Now()) }) })
	}
}

// Resume records that the host has responded well, which ends its pause unless the GET began
// before that.
func (s *Slot) Resume() {
	t, h := s.throttle, s.tenant.host
	t.mu.Lock()
	defer t.mu.Unlock()
	if h.refusals == 0 || s.began.Before(h.refused) {
		return
	}
	h.refusals, h.refused, h.restsUntil = 0, time.Time{}, time.Time{}
	for _, n := range h.tenants {
		n.restsUntil = time.Time{}
	}
	t.free(h, t.deps.Now())
}

// average adds a duration to a moving average; 0: there is none yet.
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
