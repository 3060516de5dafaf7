package throttle

import (
	"slices"
	"sync"
	"time"

	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

const (
	// maxWait is how long a request may wait in memory for a slot of a fast host.
	maxWait = 25 * time.Millisecond
	// claimedWait is how long a started key may wait in memory for its slot.
	claimedWait = time.Second
	// contention is how long the slots count as contended after requests of different namespaces.
	contention = 10 * time.Second
	// firstClaim is the first estimate of the duration of a claim.
	firstClaim = 50 * time.Millisecond
)

// Throttle hands out slots. It is safe for concurrent use.
type Throttle struct {
	cfg Config
	// running counts the started keys.
	running sync.WaitGroup

	mu         sync.Mutex
	stopped    bool
	hosts      map[string]*host
	namespaces map[string]*namespace
	// taken counts the slots of the process that are taken.
	taken int
	// queued has the waiting keys, and bytes is their memory.
	queued map[pipeline.Key]*Waiter
	bytes  int
	// claim is the moving average of the duration of claims.
	claim time.Duration
	// lastNamespace and backlog are those of the last request.
	lastNamespace  string
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

// Stop prevents further starts of queued keys, and waits for the started ones.
func (t *Throttle) Stop() {
	t.mu.Lock()
	t.stopped = true
	t.mu.Unlock()
	t.running.Wait()
}

// Acquire returns a slot, or the reason why there is none. It may block for a moment.
func (t *Throttle) Acquire(r TicketRequest) (*Ticket, *Busy) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	if t.lastNamespace != "" && t.lastNamespace != r.Namespace {
		t.contendedUntil = now.Add(contention)
	}
	t.lastNamespace, t.backlog = r.Namespace, r.Backlog
	s := r.Ticket
	if s == nil {
		s = &Ticket{tenant: t.tenant(r.Host, r.Namespace), urgent: r.Urgent}
		defer s.tenant.forget(now)
	} else {
		t.claim = average(t.claim, now.Sub(s.began))
		s.state = claimed
	}
	busy := t.busy(s, now)
	switch {
	case busy == nil:
		s.take(now)
	case !t.await(s, t.patience(s, busy.WaitsFor, now)):
		return nil, busy
	}
	return s, nil
}

// await waits in memory for a slot, and reports whether it was granted.
func (t *Throttle) await(s *Ticket, wait time.Duration) bool {
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
	h.waiting = slices.DeleteFunc(h.waiting, func(other *Ticket) bool { return other == s })
	return s.state == getting
}

// patience returns how long a request may wait in memory for a slot.
func (t *Throttle) patience(s *Ticket, obstacle v1.WaitsFor, now time.Time) time.Duration {
	n, h := s.tenant, s.tenant.host
	rounds := 1 + (n.waiting+len(n.queue))/h.limit(n, t.cfg.PerHost)
	switch {
	case obstacle != v1.WaitsFor_WAITS_FOR_HOST && obstacle != v1.WaitsFor_WAITS_FOR_NAMESPACE_SHARE:
		return 0
	case s.state == claimed:
		return claimedWait
	case time.Duration(rounds)*h.expected(now) < maxWait:
		return maxWait
	}
	return 0
}

// busy returns the reason why a key gets no slot now, or nil.
func (t *Throttle) busy(s *Ticket, now time.Time) *Busy {
	n, h := s.tenant, s.tenant.host
	used, usedOfHost, ahead := n.taken, h.taken, 0
	inOrder := s.state == arriving && h.expected(now) >= maxWait // only a fast host serves it before queued keys
	if inOrder || s.state == starting {
		used, usedOfHost = n.used(), h.used()
	}
	limit := h.limit(n, t.cfg.PerHost)
	if s.state == starting {
		ahead = h.ahead(limit, t.claim, now)
	}
	until := later(h.pausedUntil, n.pausedUntil)
	switch {
	case until.After(now) && !(s.urgent && used == 0):
		return &Busy{WaitsFor: v1.WaitsFor_WAITS_FOR_PAUSE, Pause: until.Sub(now)}
	case used >= limit+ahead, usedOfHost >= t.cfg.PerHost+ahead, inOrder && len(n.queue) > 0:
		return &Busy{WaitsFor: v1.WaitsFor_WAITS_FOR_HOST}
	case s.state == claimed:
		return nil
	case t.overShare(n.namespace, now):
		return &Busy{WaitsFor: v1.WaitsFor_WAITS_FOR_NAMESPACE_SHARE}
	case t.taken >= t.cfg.Slots:
		return &Busy{WaitsFor: v1.WaitsFor_WAITS_FOR_SLOTS}
	}
	return nil
}

// overShare reports whether a namespace has used up its share of the slots while others may wait.
func (t *Throttle) overShare(ns *namespace, now time.Time) bool {
	share := max(1, int(float64(t.cfg.Slots)*t.cfg.Share))
	return ns.used() >= share && (t.backlog || now.Before(t.contendedUntil))
}

// assignSlots assigns free slots after a change at a tenant: first to requests for its host that wait in
// memory, then to queued keys. It forgets the tenant if it is idle.
func (t *Throttle) assignSlots(n *tenant, now time.Time) {
	h := n.host
	for _, s := range h.waiting {
		if s.state != getting && t.busy(s, now) == nil {
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
	for len(t.queued) > 0 && t.taken < t.cfg.Slots && !t.stopped {
		var fewest *namespace
		for _, ns := range t.namespaces {
			if len(ns.ready) > 0 && (fewest == nil || ns.used() < fewest.used()) && !t.overShare(ns, now) {
				fewest = ns
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

// start starts the next key of a tenant, if there is room for it.
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
	s := &Ticket{tenant: n, state: starting, urgent: w.Rank == Urgent, began: now}
	if t.busy(s, now) != nil {
		return
	}
	t.drop(w)
	n.wake()
	t.taken++
	s.count(0, 1)
	t.running.Go(func() {
		defer s.End()
		w.Start(s)
	})
}
