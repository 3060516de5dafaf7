package throttle

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/kv8s/curl-me-that/proto/pipeline"
)

const (
	// contention is how long a namespace that has asked for a slot is counted
	// among those that want one.
	contention = 10 * time.Second
	// claimedWait is how long a started key waits in memory for its slot, which is
	// expected to come free within claimTime.
	claimedWait = time.Second
	// sweepAt is the number of hosts or namespaces above which idle ones are dropped.
	sweepAt = 1024
	// maxPaused bounds the hosts that may be paused: with names under a wildcard
	// one namespace could make up any number of them.
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
	hosts      map[string]*hostState
	namespaces map[string]*namespaceState
	nextSweep  int
	// held counts the slots, also those whose GET has ended.
	held int
	// queued are the keys that wait, which take so many bytes.
	queued map[pipeline.Key]*Waiter
	bytes  int64
	// ready are the namespaces with a key that may possibly be started.
	ready map[*namespaceState]struct{}
	// backlog reports whether requests waited at the broker when the last one came.
	backlog bool
}

// Deps is what a Throttle works with.
type Deps struct {
	// Now is the clock.
	Now func() time.Time
	// Start claims a key that has waited, and makes its GET with the slot. It is
	// called in a goroutine of its own.
	Start func(*Waiter, *Slot)
}

// New returns a throttle.
func New(cfg Config, deps Deps) (*Throttle, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return &Throttle{
		cfg: cfg, deps: deps, nextSweep: sweepAt,
		hosts: map[string]*hostState{}, namespaces: map[string]*namespaceState{},
		queued: map[pipeline.Key]*Waiter{}, ready: map[*namespaceState]struct{}{},
	}, nil
}

// OnStart sets Deps.Start, before the first key waits.
func (t *Throttle) OnStart(start func(*Waiter, *Slot)) { t.deps.Start = start }

// Stop starts no further key, waits until those that were started have ended, and returns the
// keys that still wait.
func (t *Throttle) Stop() []*Waiter {
	t.mu.Lock()
	t.stopped = true
	t.mu.Unlock()
	t.running.Wait()
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Collect(maps.Values(t.queued))
}

// attempt is a request with the state of its host and namespace.
type attempt struct {
	Request
	throttle *Throttle
	tenant   *tenant
	// granted gets the slot of a request that waits in memory.
	granted chan *Slot
}

// claimed reports whether it is for a started key that has no slot yet.
func (a *attempt) claimed() bool { return a.Slot != nil && a.Slot.claiming }

// Acquire returns a slot, or why there is none. It may wait for a moment.
func (t *Throttle) Acquire(r Request) (*Slot, *Busy) {
	t.mu.Lock()
	now := t.now()
	t.sweep(now)
	namespace := t.namespace(r.Namespace)
	namespace.asked, t.backlog = now, r.Backlog
	a := &attempt{Request: r, throttle: t, tenant: t.host(r.Host).tenant(r.Namespace, namespace)}
	busy := a.refusal(now)
	if busy == nil {
		defer t.mu.Unlock()
		return t.grant(a, now), nil
	}
	wait := a.patience(busy.Cause, now)
	if wait == 0 {
		defer t.mu.Unlock()
		return nil, busy
	}
	a.granted = make(chan *Slot, 1)
	h := a.tenant.host
	h.waiting = append(h.waiting, a)
	a.tenant.waiting++
	t.mu.Unlock()
	return t.await(a, busy, wait)
}

// refusal returns why a request may have no slot now.
func (a *attempt) refusal(now time.Time) *Busy {
	t, n, h := a.throttle, a.tenant, a.tenant.host
	if until := later(h.pause.until, n.pausedUntil); until.After(now) && !(a.Urgent && n.held == 0) {
		return &Busy{Cause: HostSlowed, Pause: until.Sub(now)}
	}
	perHost, limit := t.cfg.PerHost, h.limit(n, t.cfg.PerHost)
	switch {
	case h.held >= perHost, n.held >= limit:
		return &Busy{Cause: HostBusy}
	case a.claimed():
		return nil
	case a.Slot == nil && t.overShare(n.namespace, now):
		return &Busy{Cause: NamespaceShare}
	case a.Slot == nil && t.held >= t.cfg.Slots:
		return &Busy{Cause: SlotsBusy}
	case h.quick(now, t.cfg.MaxWait): // a started key need not wait for long
		return nil
	case len(n.queue) > 0, h.held+h.claiming >= perHost, n.held+n.claiming >= limit:
		return &Busy{Cause: HostBusy}
	}
	return nil
}

// patience is how long a request waits in memory for a slot; 0: not at all.
func (a *attempt) patience(cause Cause, now time.Time) time.Duration {
	t, n, h := a.throttle, a.tenant, a.tenant.host
	switch {
	case cause != HostBusy && cause != NamespaceShare:
		return 0
	case a.claimed():
		return claimedWait
	case h.mean == 0 && h.waitedInVain:
		return 0
	case h.expected(now)*time.Duration(n.waiting+len(n.queue)+1)/time.Duration(h.limit(n, t.cfg.PerHost)) > t.cfg.MaxWait:
		return 0
	}
	return t.cfg.MaxWait
}

// await waits for a slot.
func (t *Throttle) await(a *attempt, busy *Busy, wait time.Duration) (*Slot, *Busy) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case s := <-a.granted:
		return s, nil
	case <-timer.C:
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	h := a.tenant.host
	i := slices.Index(h.waiting, a)
	if i < 0 { // granted at the last moment
		return <-a.granted, nil
	}
	h.waiting = slices.Delete(h.waiting, i, i+1)
	a.tenant.waiting--
	h.waitedInVain = h.mean == 0
	return nil, busy
}

// place takes a slot of the process, without one of a host.
func (t *Throttle) place(n *tenant, now time.Time) *Slot {
	t.held++
	return &Slot{throttle: t, tenant: n, began: now}
}

// grant takes a slot of a host.
func (t *Throttle) grant(a *attempt, now time.Time) *Slot {
	s, n := a.Slot, a.tenant
	switch {
	case s == nil:
		s = t.place(n, now)
	case s.claiming:
		s.endClaim()
	}
	s.tenant, s.began, s.held = n, now, true
	n.held++
	n.namespace.held++
	n.host.held++
	n.host.taken = now
	return s
}

// freed hands on what has come free: to the requests that wait in memory, of which
// started keys come first, then those of the namespace that holds the fewest, and
// then to the queues.
func (t *Throttle) freed(h *hostState, now time.Time) {
	for h.held < t.cfg.PerHost {
		best := -1
		for i, a := range h.waiting {
			if a.refusal(now) == nil && (best < 0 || a.before(h.waiting[best])) {
				best = i
			}
		}
		if best < 0 {
			break
		}
		a := h.waiting[best]
		h.waiting = slices.Delete(h.waiting, best, best+1)
		a.tenant.waiting--
		a.granted <- t.grant(a, now)
	}
	h.wake()
	t.dispatch(now)
}

func (a *attempt) before(b *attempt) bool {
	if a.claimed() != b.claimed() {
		return a.claimed()
	}
	return a.tenant.held < b.tenant.held
}

// overShare reports whether a namespace holds its share of the slots and others want
// some.
func (t *Throttle) overShare(n *namespaceState, now time.Time) bool {
	if n.held < t.cfg.perNamespace() {
		return false
	}
	for _, other := range t.namespaces {
		if other != n && (len(other.ready) > 0 || now.Sub(other.asked) < contention) {
			return true
		}
	}
	return t.backlog
}

func (t *Throttle) host(name string) *hostState {
	h, ok := t.hosts[name]
	if !ok {
		h = &hostState{throttle: t, tenants: map[string]*tenant{}}
		t.hosts[name] = h
	}
	return h
}

func (t *Throttle) namespace(name string) *namespaceState {
	n, ok := t.namespaces[name]
	if !ok {
		n = new(namespaceState)
		t.namespaces[name] = n
	}
	return n
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

// sweep drops idle hosts and namespaces once there are many.
func (t *Throttle) sweep(now time.Time) {
	if len(t.hosts) < t.nextSweep && len(t.namespaces) < t.nextSweep {
		return
	}
	used := map[*namespaceState]bool{}
	for name, h := range t.hosts {
		if h.forget(now) {
			delete(t.hosts, name)
		}
		for _, n := range h.tenants {
			used[n.namespace] = true
		}
	}
	for name, n := range t.namespaces {
		if n.held == 0 && !used[n] {
			delete(t.namespaces, name)
		}
	}
	t.nextSweep = max(sweepAt, 2*len(t.hosts), 2*len(t.namespaces))
}

func (t *Throttle) now() time.Time { return t.deps.Now() }
