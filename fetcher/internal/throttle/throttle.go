package throttle

import (
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
)

const (
	// contention is how long a namespace that has asked for a slot is counted
	// among those that want one.
	contention = 10 * time.Second
	// fresh is the part of MaxWait that a request without a reservation waits.
	fresh = 8
	// learn is how long all requests to a host wait of which no GET has ended
	// yet, to see whether it is quick. It happens once for each host.
	learn = 25 * time.Millisecond
	// sweepAt is the number of hosts or namespaces above which idle ones are
	// looked for and dropped.
	sweepAt = 1024
	// maxPaused bounds the hosts that may be paused: with names under a wildcard
	// one namespace could make up any number of them.
	maxPaused = 16 * sweepAt
)

// Throttle hands out slots. It is safe for concurrent use.
type Throttle struct {
	cfg     Config
	now     func() time.Time
	waiters *semaphore.Weighted

	mu         sync.Mutex
	hosts      map[string]*hostState
	namespaces map[string]*namespaceState
	nextSweep  int
	// guesses counts those that are remembered.
	guesses int
	// last and other are the namespaces that asked last and, before it, another.
	last, other request
}

type request struct {
	namespace string
	at        time.Time
}

// Deps is what a Throttle works with.
type Deps struct {
	// Now is the clock.
	Now func() time.Time
}

// New returns a throttle.
func New(cfg Config, deps Deps) (*Throttle, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return &Throttle{
		cfg: cfg, now: deps.Now, waiters: semaphore.NewWeighted(cfg.waiters()), nextSweep: sweepAt,
		hosts: map[string]*hostState{}, namespaces: map[string]*namespaceState{},
	}, nil
}

// Acquire returns a slot, or why there is none now and when there will be. It
// may wait for a moment.
func (t *Throttle) Acquire(r Request) (*Slot, *Busy) {
	t.mu.Lock()
	a := t.attempt(r)
	if busy := t.refuse(a); busy != nil {
		t.mu.Unlock()
		return nil, busy
	}
	if a.host.held < t.cfg.PerHost && a.tenant.held < a.limit {
		defer t.mu.Unlock()
		return t.grant(a), nil
	}
	wait, place := t.maxWait(a)
	if wait == 0 {
		defer t.mu.Unlock()
		return nil, t.hostBusy(a)
	}
	p := t.addWaiting(a)
	t.mu.Unlock()
	if place {
		defer t.waiters.Release(1)
	}
	return t.await(a, p, wait)
}

// attempt is a request with what is known of its host and namespace.
type attempt struct {
	Request
	now       time.Time
	host      *hostState
	tenant    *tenant
	namespace *namespaceState
	// limit is how many slots of the host the namespace may hold.
	limit int
}

func (t *Throttle) attempt(r Request) *attempt {
	a := &attempt{Request: r, now: t.now()}
	t.sweep(a.now)
	host, ok := t.hosts[r.Host]
	if !ok {
		host = newHostState(&t.guesses)
		t.hosts[r.Host] = host
	}
	namespace, ok := t.namespaces[r.Namespace]
	if !ok {
		namespace = &namespaceState{meter: meter{guess: namespaceGuess}}
		t.namespaces[r.Namespace] = namespace
	}
	a.host, a.tenant, a.namespace = host, host.tenant(r.Namespace), namespace
	a.limit = host.limit(r.Namespace, t.cfg.PerHost, a.now)
	if t.last.namespace != r.Namespace {
		t.other = t.last
	}
	t.last = request{namespace: r.Namespace, at: a.now}
	return a
}

// refuse returns why a request may have no slot, free or not.
func (t *Throttle) refuse(a *attempt) *Busy {
	until := later(a.host.pause.until, a.tenant.pausedUntil)
	if until.After(a.now) && !(a.Urgent && a.tenant.held == 0) {
		pace := a.host.pace(a.now, a.limit)
		return &Busy{Cause: HostSlowed, Wait: a.tenant.reserve(a.now, later(until, a.now.Add(t.cfg.MinPark)), pace).Sub(a.now)}
	}
	if limit := t.cfg.perNamespace(); a.namespace.held >= limit && (a.Backlog || t.contended(a.now)) {
		pace := a.namespace.pace(a.now, limit)
		return &Busy{Cause: NamespaceShare, Wait: a.namespace.reserve(a.now, a.now.Add(t.cfg.MinPark), pace).Sub(a.now)}
	}
	return nil
}

// hostBusy reserves a time.
func (t *Throttle) hostBusy(a *attempt) *Busy {
	pace := a.host.pace(a.now, a.limit)
	earliest := a.now.Add(t.cfg.MinPark)
	if a.Urgent {
		return &Busy{Cause: HostBusy, Wait: t.cfg.MinPark}
	}
	remembered := a.tenant.guesses.take(a.Waiter)
	if !pace.known && !remembered && a.tenant.next.Sub(a.now) > maxUnadvanced {
		return &Busy{Cause: HostBusy, Wait: maxUnadvanced}
	}
	at := a.tenant.reserve(a.now, earliest, pace)
	if !pace.known && remembered {
		a.tenant.guesses.add(a.Waiter, at)
	}
	return &Busy{Cause: HostBusy, Wait: at.Sub(a.now)}
}

// maxWait is how long to wait in memory for a slot, and whether that takes one
// of the places to wait; 0: it is not worth it.
func (t *Throttle) maxWait(a *attempt) (wait time.Duration, place bool) {
	wait = t.cfg.MaxWait
	if !a.Reserved && !a.Urgent {
		wait /= fresh
	}
	if a.host.returns == 0 {
		if a.host.waitedInVain {
			return 0, false
		}
		return min(wait, learn), false
	}
	ahead := a.tenant.waiting
	if !a.Reserved {
		ahead++
	}
	if a.Urgent {
		ahead = 0
	}
	switch expected := a.host.pace(a.now, a.limit).Duration * time.Duration(ahead); {
	case expected > wait:
		return 0, false
	case a.Reserved && expected < t.cfg.MaxWait/fresh:
		// Timers fire in bunches, and no more of them than slots come free.
		return wait, false
	}
	if !t.waiters.TryAcquire(1) {
		return 0, false
	}
	return wait, true
}

// addWaiting lets a request wait for a slot of its host.
func (t *Throttle) addWaiting(a *attempt) *pending {
	p := &pending{granted: make(chan struct{}), rank: 2, tenant: a.tenant, name: a.Namespace, namespace: a.namespace}
	switch {
	case a.Urgent:
		p.rank = 0
	case a.Reserved:
		p.rank = 1
	}
	a.host.waiting = append(a.host.waiting, p)
	a.tenant.waiting++
	a.namespace.waiting++
	return p
}

// await waits for a slot.
func (t *Throttle) await(a *attempt, p *pending, wait time.Duration) (*Slot, *Busy) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-p.granted:
	case <-timer.C:
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	a.now = t.now()
	i := slices.Index(a.host.waiting, p)
	if i < 0 { // granted, if only at the last moment
		return t.slot(a), nil
	}
	a.host.waiting = slices.Delete(a.host.waiting, i, i+1)
	a.tenant.waiting--
	a.namespace.waiting--
	a.host.waitedInVain = a.host.returns == 0
	return nil, t.hostBusy(a)
}

// grant takes a slot.
func (t *Throttle) grant(a *attempt) *Slot {
	a.host.take(a.now)
	a.tenant.held++
	a.namespace.take(a.now)
	return t.slot(a)
}

func (t *Throttle) slot(a *attempt) *Slot {
	return &Slot{throttle: t, name: a.Namespace, host: a.host, tenant: a.tenant, namespace: a.namespace, began: a.now}
}

// release gives a slot back, and to the next that waits for one.
func (t *Throttle) release(s *Slot) {
	now := t.now()
	s.host.giveBack(now.Sub(s.began))
	s.namespace.giveBack(now.Sub(s.began))
	s.tenant.held--
	for s.host.held < t.cfg.PerHost {
		next := s.host.takeWaiting(t.cfg.PerHost, now)
		if next == nil {
			return
		}
		next.tenant.waiting--
		next.namespace.waiting--
		s.host.take(now)
		next.tenant.held++
		next.namespace.take(now)
		close(next.granted)
	}
}

// Hosts counts the hosts in each state, by the name of that.
func (t *Throttle) Hosts() map[string]float64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.now()
	counts := map[string]float64{}
	for _, s := range States() {
		counts[string(s)] = 0
	}
	for _, h := range t.hosts {
		if s := h.state(now); s != "" {
			counts[string(s)]++
		}
	}
	return counts
}

// contended reports whether another namespace than the one that asks now has
// asked lately.
func (t *Throttle) contended(now time.Time) bool {
	return !t.other.at.IsZero() && now.Sub(t.other.at) < contention
}

// sweep drops idle hosts and namespaces once there are many.
func (t *Throttle) sweep(now time.Time) {
	if len(t.hosts) < t.nextSweep && len(t.namespaces) < t.nextSweep {
		return
	}
	for name, h := range t.hosts {
		if h.idle(now) {
			delete(t.hosts, name)
		}
	}
	for name, n := range t.namespaces {
		if n.idle(now) {
			delete(t.namespaces, name)
		}
	}
	t.nextSweep = max(sweepAt, 2*len(t.hosts), 2*len(t.namespaces))
}
