package throttle

import "time"

// firstPause is the first pause after a refusal.
const firstPause = time.Second

// pause is what a host has asked for.
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

// Slot is the permission to make one GET.
type Slot struct {
	throttle  *Throttle
	name      string
	host      *hostState
	tenant    *tenant
	namespace *namespaceState
	began     time.Time
	released  bool
}

// Release gives the slot back. A second call does nothing.
func (s *Slot) Release() {
	s.throttle.mu.Lock()
	defer s.throttle.mu.Unlock()
	if s.released {
		return
	}
	s.released = true
	s.throttle.release(s)
}

// Advance returns a want that waits for the same host, of the same namespace, for
// too long, as it was not known how long a GET takes, and how long it has to wait
// from now on. There is none if ok is false.
func (s *Slot) Advance() (w *Waiter, wait time.Duration, ok bool) {
	t := s.throttle
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.now()
	if s.host.returns == 0 || later(s.host.pause.until, s.tenant.pausedUntil).After(now) {
		return w, 0, false
	}
	pace := s.host.pace(now, s.host.limit(s.name, t.cfg.PerHost, now))
	w, at, ok := s.tenant.advance(now, now.Add(t.cfg.MinPark), pace)
	return w, at.Sub(now), ok
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
	now := t.now()
	wait := min(asked, s.host.pause.grow(s.began))
	s.host.pause.since = now
	s.host.pause.until = later(s.host.pause.until, now.Add(min(wait, t.cfg.MaxPauseOthers)))
	s.tenant.pausedUntil = later(s.tenant.pausedUntil, now.Add(min(wait, t.cfg.MaxPause)))
}

// Resume records that the host has responded well, which ends its pause unless the
// GET began before that.
func (s *Slot) Resume() {
	s.throttle.mu.Lock()
	defer s.throttle.mu.Unlock()
	if p := &s.host.pause; p.refusals > 0 && !s.began.Before(p.since) {
		*p = pause{}
		for _, t := range s.host.tenants {
			t.pausedUntil = time.Time{}
		}
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
