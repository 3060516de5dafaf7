package throttle

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/kv8s/curl-me-that/proto/pipeline"
)

const (
	// contention is how long a namespace counts among those that want slots after it asked for one.
	contention = 10 * time.Second
	// firstClaim is the time that the first claim probably takes.
	firstClaim = 50 * time.Millisecond
	// claimedWait is how long a started key waits in memory for its slot.
	claimedWait = time.Second
	// sweepAt is the number of hosts or namespaces above which idle ones are dropped.
	sweepAt = 1024
	// maxPaused is the maximum number of paused hosts: with names under a wildcard one namespace
	// could invent any number of them.
	maxPaused = 16 * sweepAt
)

// Throttle hands out slots. It is safe for concurrent use.
type Throttle struct {
	cfg  Config
	deps Deps
	// running are the started keys.
	running sync.WaitGroup

	mu         sync.Mutex
	stopped    bool
	hosts      map[string]*host
	namespaces map[string]*namespace
	nextSweep  int
	// held counts the slots of the process. Each is held until the outcome of its GET is published.
	held int
	// queued are the keys that wait with a lease, and bytes is their memory.
	queued map[pipeline.Key]*Waiter
	bytes  int64
	// ready are the namespaces with a key that may be started.
	ready map[*namespace]struct{}
	// claim is the moving average of the time that a claim takes.
	claim time.Duration
	// asked is the last request, and askedBefore the last one of another namespace.
	asked, askedBefore request
}

// Deps is what a Throttle works with.
type Deps struct {
	// Now is the clock.
	Now func() time.Time
	// Start claims a key that has waited, and makes its GET with the slot. It is called in a
	// goroutine of its own.
	Start func(*Waiter, *Slot)
}

// New returns a throttle.
func New(cfg Config, deps Deps) (*Throttle, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return &Throttle{
		cfg: cfg, deps: deps, nextSweep: sweepAt, claim: firstClaim,
		hosts: map[string]*host{}, namespaces: map[string]*namespace{},
		queued: map[pipeline.Key]*Waiter{}, ready: map[*namespace]struct{}{},
	}, nil
}

// OnStart sets Deps.Start, before the first key waits.
func (t *Throttle) OnStart(start func(*Waiter, *Slot)) { t.deps.Start = start }

// Stop starts no further key, waits until the started ones have ended, and returns the keys that
// still wait.
func (t *Throttle) Stop() []*Waiter {
	t.mu.Lock()
	t.stopped = true
	t.mu.Unlock()
	t.running.Wait()
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Collect(maps.Values(t.queued))
}

// request is a namespace that has asked for a slot.
type request struct {
	namespace string
	at        time.Time
	// backlog reports whether further requests waited at the broker.
	backlog bool
}

// Acquire returns a slot, or why there is none. It may wait for a moment.
func (t *Throttle) Acquire(r Request) (*Slot, *Busy) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.deps.Now()
	t.sweep(now)
	n := t.tenant(r.Host, r.Namespace)
	if t.asked.namespace != r.Namespace {
		t.askedBefore = t.asked
	}
	t.asked = request{r.Namespace, now, r.Backlog}
	a := &attempt{tenant: n, slot: r.Slot, urgent: r.Urgent}
	if r.Slot != nil {
		a.phase = claimed
		t.claim = average(t.claim, now.Sub(a.slot.began))
	}
	busy := t.refusal(a, now)
	if busy == nil {
		return t.grant(a, now), nil
	}
	wait := t.patience(a, busy.Cause, now)
	if wait == 0 {
		return nil, busy
	}
	a.granted = make(chan *Slot, 1)
	n.waiting++
	h := n.host
	h.waiting = append(h.waiting, a)
	timer := time.NewTimer(wait)
	defer timer.Stop()
	t.mu.Unlock()
	defer t.mu.Lock()
	select {
	case s := <-a.granted:
		return s, nil
	case <-timer.C:
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(a.granted) == 0 {
		n.waiting--
		h.waiting = slices.DeleteFunc(h.waiting, func(other *attempt) bool { return other == a })
		return nil, busy
	}
	return <-a.granted, nil
}

// attempt is a key that asks for a slot.
type attempt struct {
	tenant *tenant
	phase  phase
	urgent bool
	// slot of a started key.
	slot *Slot
	// granted gets the slot of a key that waits in memory.
	granted chan *Slot
}

// phase of a key that asks for a slot.
type phase int

const (
	arriving phase = iota // it was delivered
	starting              // it is the first of its queue
	claimed               // it was started, has a slot of the process, and needs one of the host
)

// patience is how long a key waits in memory for a slot.
func (t *Throttle) patience(a *attempt, cause Cause, now time.Time) time.Duration {
	n, h := a.tenant, a.tenant.host
	expected := h.expected(now)
	turns := float64(n.waiting+len(n.queue)+1) / float64(h.limit(n, t.cfg.PerHost))
	switch {
	case cause != HostBusy && cause != NamespaceShare:
		return 0
	case a.phase == claimed:
		return claimedWait
	case h.mean == 0 && expected >= t.cfg.MaxWait,
		turns*expected.Seconds() > t.cfg.MaxWait.Seconds():
		return 0
	}
	return t.cfg.MaxWait
}

// refusal returns why a key may not have a slot now.
func (t *Throttle) refusal(a *attempt, now time.Time) *Busy {
	n, h := a.tenant, a.tenant.host
	limit, perHost := h.limit(n, t.cfg.PerHost), t.cfg.PerHost
	used, ahead := n.held, 0
	if a.phase == starting {
		used, ahead = n.held+n.claiming, h.ahead(limit, t.claim, now)
	}
	until := later(h.restsUntil, n.restsUntil)
	switch {
	case until.After(now) && !(a.urgent && used == 0):
		return &Busy{Cause: HostSlowed, Pause: until.Sub(now)}
	case n.held >= limit+ahead, h.held >= perHost+ahead:
		return &Busy{Cause: HostBusy}
	case a.phase == claimed:
		return nil
	case t.overShare(n.namespace, now):
		return &Busy{Cause: NamespaceShare}
	case t.held >= t.cfg.Slots:
		return &Busy{Cause: SlotsBusy}
	case a.phase == arriving && h.quick(now, t.cfg.MaxWait): // a started key need not wait for long
		return nil
	case a.phase == arriving && len(n.queue) > 0,
		n.held+n.claiming >= limit+ahead, h.held+h.claiming >= perHost+ahead:
		return &Busy{Cause: HostBusy}
	}
	return nil
}

// overShare reports whether a namespace holds its share of the slots and others want some.
func (t *Throttle) overShare(n *namespace, now time.Time) bool {
	other := t.asked
	if other.namespace == n.name {
		other = t.askedBefore
	}
	_, ready := t.ready[n]
	others := t.asked.backlog || len(t.ready) > 1 || len(t.ready) == 1 && !ready || now.Sub(other.at) < contention
	return others && n.held >= t.cfg.perNamespace()
}

// place takes a slot of the process, without one of a host.
func (t *Throttle) place(n *tenant) *Slot {
	t.held++
	n.placed++
	s := &Slot{throttle: t, tenant: n, began: t.deps.Now()}
	s.count(0, 1)
	return s
}

// grant takes a slot of a host.
func (t *Throttle) grant(a *attempt, now time.Time) *Slot {
	s := a.slot
	if s == nil {
		s = t.place(a.tenant)
	}
	s.count(1, -1)
	s.state, s.began, a.tenant.host.taken = getting, now, now
	return s
}

// free hands on what has come free: to the keys that wait in memory, then to the queues.
func (t *Throttle) free(h *host, now time.Time) {
	h.waiting = slices.DeleteFunc(h.waiting, func(a *attempt) bool {
		if h.held >= t.cfg.PerHost || t.refusal(a, now) != nil {
			return false
		}
		a.tenant.waiting--
		a.granted <- t.grant(a, now)
		return true
	})
	for _, n := range h.tenants {
		n.wake()
	}
	t.dispatch(now)
}

// dispatch starts keys while there is room for them.
func (t *Throttle) dispatch(now time.Time) {
	for !t.stopped {
		w := t.next(now)
		if w == nil {
			return
		}
		s := t.place(w.tenant)
		t.running.Go(func() {
			defer s.End()
			t.deps.Start(w, s)
		})
	}
}

// next takes the next key out of its queue: one of the namespace that holds fewest slots, whose
// hosts take turns.
func (t *Throttle) next(now time.Time) *Waiter {
	for t.held < t.cfg.Slots {
		var fewest *namespace
		for n := range t.ready {
			if (fewest == nil || n.held < fewest.held) && !t.overShare(n, now) {
				fewest = n
			}
		}
		if fewest == nil {
			return nil
		}
		n := fewest.ready[0]
		fewest.ready = fewest.ready[1:]
		if n.ready = false; len(fewest.ready) == 0 {
			delete(t.ready, fewest)
		}
		for len(n.queue) > 0 && !n.queue[0].until.After(now) {
			t.drop(n.queue[0]) // another fetcher may have it
		}
		if len(n.queue) == 0 {
			continue
		}
		w := n.queue[0]
		if t.refusal(&attempt{tenant: n, phase: starting, urgent: w.Rank == Urgent}, now) == nil {
			t.drop(w)
			n.wake()
			return w
		}
	}
	return nil
}

func (t *Throttle) locked(do func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	do()
}

// sweep drops idle hosts and namespaces once there are many.
func (t *Throttle) sweep(now time.Time) {
	if len(t.hosts) < t.nextSweep {
		return
	}
	for name, h := range t.hosts {
		for _, n := range h.tenants {
			n.forget(now)
		}
		if len(h.tenants) == 0 && !h.restsUntil.After(now) {
			delete(t.hosts, name)
		}
	}
	t.nextSweep = max(sweepAt, 2*len(t.hosts))
}
