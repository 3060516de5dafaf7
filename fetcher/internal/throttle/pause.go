package throttle

import "time"

// firstPause is the first pause after a refusal.
const firstPause = time.Second

// pause is a rest that a host has asked for.
type pause struct {
	// refusals in a row, each after the pause for the one before.
	refusals uint
	// since and until are its begin and its end.
	since, until time.Time
}

// grow notes a refusal and returns the pause that it leads to, before bounds.
// Refusals of GETs that were under way when the pause began count once.
func (p *pause) grow(began time.Time) time.Duration {
	if p.refusals == 0 || !began.Before(p.since) {
		p.refusals++
	}
	return firstPause << min(p.refusals-1, 16)
}

// Slot is the permission to make GETs, one at a time.
type Slot struct {
	throttle *Throttle
	tenant   *tenant
	began    time.Time
	// claiming: its key was started, and it has no slot of the host yet.
	// held: it has one. ended: it is none any more.
	claiming, held, ended bool
}

// Release gives the slot of the host back, once a GET has ended. A second call does
// nothing.
func (s *Slot) Release() {
	s.throttle.mu.Lock()
	defer s.throttle.mu.Unlock()
	s.release(s.throttle.now())
}

func (s *Slot) release(now time.Time) {
	if !s.held {
		return
	}
	s.held = false
	s.tenant.held--
	s.tenant.namespace.held--
	s.tenant.host.giveBack(now.Sub(s.began))
	s.throttle.freed(s.tenant.host, now)
}

// End gives the slot of the process back, too, once the outcome is published: until
// then the body takes memory. A second call does nothing.
func (s *Slot) End() {
	t := s.throttle
	t.mu.Lock()
	defer t.mu.Unlock()
	if s.ended {
		return
	}
	now := t.now()
	s.ended = true
	t.held--
	if s.claiming {
		s.endClaim()
	}
	s.release(now)
	t.freed(s.tenant.host, now)
	if tenants := s.tenant.host.tenants; s.tenant.idle(now) && tenants[s.tenant.name] == s.tenant {
		delete(tenants, s.tenant.name)
	}
}

func (s *Slot) endClaim() {
	s.claiming = false
	s.tenant.claiming--
	s.tenant.namespace.held--
	s.tenant.host.claiming--
}

// Pause notes that the host has refused the GET and asks for a pause. The URL
// itself is for the caller to put off; others on the host are held up for a
// short time only, which grows with each refusal: longer for the same namespace
// than for others.
func (s *Slot) Pause(asked time.Duration) {
	t := s.throttle
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.hosts) >= maxPaused {
		return
	}
	h, now := s.tenant.host, t.now()
	wait := min(asked, h.pause.grow(s.began))
	h.pause.since = now
	h.pause.until = later(h.pause.until, now.Add(min(wait, t.cfg.MaxPauseOthers)))
	s.tenant.pausedUntil = later(s.tenant.pausedUntil, now.Add(min(wait, t.cfg.MaxPause)))
	for _, until := range []time.Time{h.pause.until, s.tenant.pausedUntil} {
		time.AfterFunc(until.Sub(now), func() {
			t.mu.Lock()
			defer t.mu.Unlock()
			t.freed(h, t.now())
		})
	}
}

// Resume records that the host has responded well, which ends its pause unless the
// GET began before that.
func (s *Slot) Resume() {
	s.throttle.mu.Lock()
	defer s.throttle.mu.Unlock()
	h := s.tenant.host
	if p := &h.pause; p.refusals > 0 && !s.began.Before(p.since) {
		*p = pause{}
		for _, t := range h.tenants {
			t.pausedUntil = time.Time{}
		}
		s.throttle.freed(h, s.throttle.now())
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
