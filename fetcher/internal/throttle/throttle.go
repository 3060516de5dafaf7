package throttle

import (
	"slices"
	"sync"
	"time"

	"github.com/kv8s/curl-me-that/proto/pipeline"
)

const (
	// maxWait is how long a request may wait in memory for a slot of a quick host.
	maxWait = 25 * time.Millisecond
	// claimedWait is how long a started key may wait in memory for its slot.
	claimedWait = time.Second
	// contention is how long the slots count as contended after another namespace asked for one.
	contention = 10 * time.Second
	// firstClaim is the expected duration of the first claim.
	firstClaim = 50 * time.Millisecond
)

// Throttle hands out slots. It is safe for concurrent use.
type Throttle struct {
	cfg Config
	// running are the started keys.
	running sync.WaitGroup

	mu         sync.Mutex
	stopped    bool
	hosts      map[string]*host
	namespaces map[string]*namespace
	// held counts the slots of the process. Each is held until the outcome of its GET is published.
	held int
	// queued are the keys that wait with a lease, and bytes is their memory.
	queued map[pipeline.Key]*Waiter
	bytes  int
	// claim is the moving average of the duration of claims.
	claim time.Duration
	// asked is the namespace of the last request. The slots are contended until contendedUntil.
	asked          string
	backlog        bool
	contendedUntil time.Time
}

// New returns a throttle with a valid configuration.
func New(cfg Config) *Throttle {
	return &Throttle{
		cfg: cfg, claim: firstClaim,
		hosts: map[string]*host{}, namespaces: map[string]*namespace{}, queued: map[pipeline.Key]*Waiter{},
	}
}

// Stop starts no further key, and waits until the started ones have ended.
func (t *Throttle) Stop() {
	t.mu.Lock()
	t.stopped = true
	t.mu.Unlock()
	t.running.Wait()
}

// Acquire returns a slot, or why there is none. It may wait for a moment.
func (t *Throttle) Acquire(r Request) (*Slot, *Busy) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	if t.asked != "" && t.asked != r.Namespace {
		t.contendedUntil = now.Add(contention)
	}
	t.asked, t.backlog = r.Namespace, r.Backlog
	s := r.Slot
	if s == nil {
		s = &Slot{tenant: t.tenant(r.Host, r.Namespace), urgent: r.Urgent}
		defer s.tenant.forget(now)
	} else {
		t.claim = average(t.claim, now.Sub(s.began))
		s.state = claimed
	}
	busy := t.refusal(s, now)
	switch {
	case busy == nil:
		s.take(now)
	case !t.await(s, t.patience(s, busy.Cause, now)):
		return nil, busy
	}
	return s, nil
}

// await waits in memory for a slot. It reports whether the slot was granted.
func (t *Throttle) await(s *Slot, wait time.Duration) bool {
	n, h := s.tenant, s.tenant.host
	s.granted = make(chan struct{})
	n.waiting++
	h.waiting = append(h.waiting, s)
	t.mu.Unlock()
	select {
	case <-s.granted:
	case <-time.After(wait):
	}
	t.mu.Lock()
	n.waiting--
	h.waiting = slices.DeleteFunc(h.waiting, func(other *Slot) bool { return other == s })
	return s.state == getting
}

// patience is how long a request may wait in memory for a slot.
func (t *Throttle) patience(s *Slot, cause Cause, now time.Time) time.Duration {
	n, h := s.tenant, s.tenant.host
	rounds := 1 + (n.waiting+len(n.queue))/h.limit(n, t.cfg.PerHost)
	switch {
	case cause != HostBusy && cause != NamespaceShare:
		return 0
	case s.state == claimed:
		return claimedWait
	case time.Duration(rounds)*h.expected(now) < maxWait:
		return maxWait
	}
	return 0
}

// refusal returns why a key may not have a slot now.
func (t *Throttle) refusal(s *Slot, now time.Time) *Busy {
	n, h := s.tenant, s.tenant.host
	used, usedOfHost, ahead := n.held, h.held, 0
	inOrder := s.state == arriving && h.expected(now) >= maxWait // waiting for a started key takes too long
	if inOrder || s.state == starting {
		used, usedOfHost = n.used(), h.used()
	}
	limit := h.limit(n, t.cfg.PerHost)
	if s.state == starting {
		ahead = h.ahead(limit, t.claim, now)
	}
	until := later(h.restsUntil, n.restsUntil)
	switch {
	case until.After(now) && !(s.urgent && used == 0):
		return &Busy{Cause: HostSlowed, Pause: until.Sub(now)}
	case used >= limit+ahead, usedOfHost >= t.cfg.PerHost+ahead, inOrder && len(n.queue) > 0:
		return &Busy{Cause: HostBusy}
	case s.state == claimed:
		return nil
	case t.overShare(n.namespace, now):
		return &Busy{Cause: NamespaceShare}
	case t.held >= t.cfg.Slots:
		return &Busy{Cause: SlotsBusy}
	}
	return nil
}

// overShare reports whether a namespace holds its share of the slots while others want some.
func (t *Throttle) overShare(of *namespace, now time.Time) bool {
	share := max(1, int(float64(t.cfg.Slots)*t.cfg.Share))
	return of.used() >= share && (t.backlog || now.Before(t.contendedUntil))
}

// settle hands out the free slots of a host: first to the requests that wait in memory, then to the queues.
// It forgets the tenant if nothing needs it.
func (t *Throttle) settle(n *tenant, now time.Time) {
	h := n.host
	for _, s := range h.waiting {
		if s.state != getting && t.refusal(s, now) == nil {
			s.take(now)
			close(s.granted)
		}
	}
	for _, other := range h.tenants {
		other.wake()
	}
	t.dispatch(now)
	n.forget(now)
}

// dispatch starts queued keys while there is room for them. The namespace that holds the fewest
// slots comes first.
func (t *Throttle) dispatch(now time.Time) {
	for len(t.queued) > 0 && t.held < t.cfg.Slots && !t.stopped {
		var fewest *namespace
		for _, of := range t.namespaces {
			if len(of.ready) > 0 && (fewest == nil || of.used() < fewest.used()) && !t.overShare(of, now) {
				fewest = of
			}
		}
		if fewest == nil {
			return
		}
		for n := range fewest.ready {
			t.start(n, now)
			break
		}
	}
}

// start starts the next key of a namespace for a host, if there is room for it.
func (t *Throttle) start(n *tenant, now time.Time) {
	delete(n.namespace.ready, n)
	for len(n.queue) > 0 && n.queue[0].Until.Before(now.Add(leaseMargin)) {
		t.drop(n.queue[0]) // another fetcher may have it
	}
	if len(n.queue) == 0 {
		n.forget(now)
		return
	}
	w := n.queue[0]
	s := &Slot{tenant: n, state: starting, urgent: w.Rank == Urgent, began: now}
	if t.refusal(s, now) != nil {
		return
	}
	t.drop(w)
	n.wake()
	t.held++
	s.count(0, 1)
	t.running.Go(func() {
		defer s.End()
		w.Start(s)
	})
}
