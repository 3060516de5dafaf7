package throttle

import (
	"slices"
	"sync"
	"time"
)

const (
	// contention is how long a namespace that has asked for a slot is counted
	// among those who want one.
	contention = 10 * time.Second
	// guess is the part of the patience after which a host is thought to hang
	// that has given back no slot.
	guess = 10
	// sweepAt is the number of hosts or namespaces above which those that
	// nothing needs to be known of are looked for and forgotten.
	sweepAt = 1024
	// maxClosed bounds the hosts that are left alone on their own wish: with
	// names under a wildcard one tenant could make up any number of them.
	maxClosed = 16 * sweepAt
)

// Throttle admits GETs. It is safe for concurrent use.
type Throttle struct {
	limits Config
	now    func() time.Time

	mu         sync.Mutex
	hosts      map[string]*hostState
	namespaces map[string]*hostState
	nextSweep  int
	// last and other are the namespaces that asked last and, before it, another.
	last, other asker
}

type asker struct {
	namespace string
	at        time.Time
}

// New returns a limiter; now is its clock.
func New(limits Config, now func() time.Time) (*Throttle, error) {
	if err := limits.Validate(); err != nil {
		return nil, err
	}
	return &Throttle{
		limits: limits, now: now, nextSweep: sweepAt,
		hosts: map[string]*hostState{}, namespaces: map[string]*hostState{},
	}, nil
}

// Acquire returns a function that gives the slot back, or else why there is
// none now. backlog reports whether further requests are waiting unseen, by
// whomever.
func (l *Throttle) Acquire(host, namespace string, backlog bool) (release func(), busy *Busy) {
	l.mu.Lock()
	now := l.now()
	l.sweep(now)
	h, n := lookup(l.hosts, host), lookup(l.namespaces, namespace)
	l.asks(namespace, now)
	var w *waiter
	switch {
	case h.closed.After(now):
		busy = l.busy(HostSlowed, h, l.limits.PerHost, now)
	case n.held >= l.limits.perNamespace() && (backlog || l.contended(now)):
		busy = l.busy(NamespaceShare, n, l.limits.perNamespace(), now)
	case h.held < l.limits.PerHost:
		h.take(now)
		n.take(now)
	case !h.quick(now, l.limits.PerHost, l.limits.Patience):
		busy = l.busy(HostBusy, h, l.limits.PerHost, now)
	default:
		w = &waiter{granted: make(chan struct{}), namespace: n}
		h.waiting = append(h.waiting, w)
		n.elsewhere++
	}
	returns := h.returns
	l.mu.Unlock()
	if w != nil {
		busy = l.await(h, w, returns)
	}
	if busy != nil {
		return nil, busy
	}
	return l.releaser(h, n), nil
}

// await waits for the next free slot of a quick host: for a moment, to see if
// any comes free at all, and then for the rest of the patience. returns is how
// many have come free before.
func (l *Throttle) await(h *hostState, w *waiter, returns uint64) *Busy {
	moment := l.limits.Patience / guess
	if within(w, moment) {
		return nil
	}
	l.mu.Lock()
	lively := h.returns > returns
	l.mu.Unlock()
	if lively && within(w, l.limits.Patience-moment) {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	i := slices.Index(h.waiting, w)
	if i < 0 { // granted at the last moment
		return nil
	}
	h.waiting = slices.Delete(h.waiting, i, i+1)
	w.namespace.elsewhere--
	h.vain = h.vain || !lively
	return l.busy(HostBusy, h, l.limits.PerHost, l.now())
}

// within reports whether a waiter is given a slot in time.
func within(w *waiter, patience time.Duration) bool {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-w.granted:
		return true
	case <-timer.C:
		return false
	}
}

func (l *Throttle) releaser(h, n *hostState) func() {
	began := l.now()
	return sync.OnceFunc(func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		now := l.now()
		h.observe(now.Sub(began))
		n.observe(now.Sub(began))
		n.held--
		if len(h.waiting) == 0 {
			h.held--
			return
		}
		next := h.waiting[0]
		h.waiting = slices.Delete(h.waiting, 0, 1)
		h.taken = now
		next.namespace.elsewhere--
		next.namespace.take(now)
		close(next.granted)
	})
}

// SlowDown leaves a host alone until the given time.
func (l *Throttle) SlowDown(host string, until time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.hosts) >= maxClosed {
		return
	}
	if h := lookup(l.hosts, host); until.After(h.closed) {
		h.closed = until
	}
}

// Hosts counts the hosts in each state.
func (l *Throttle) Hosts() map[State]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	counts := make(map[State]int, len(States()))
	for _, h := range l.hosts {
		if s := h.state(now); s != "" {
			counts[s]++
		}
	}
	return counts
}

func (l *Throttle) busy(cause Cause, in *hostState, limit int, now time.Time) *Busy {
	return &Busy{Cause: cause, Wait: in.next(now, limit, l.limits.Pause, l.limits.MaxPause)}
}

func (l *Throttle) asks(namespace string, now time.Time) {
	if l.last.namespace != namespace {
		l.other = l.last
	}
	l.last = asker{namespace: namespace, at: now}
}

// contended reports whether another namespace than the one that asks now has
// asked lately.
func (l *Throttle) contended(now time.Time) bool {
	return !l.other.at.IsZero() && now.Sub(l.other.at) < contention
}

func (l *Throttle) sweep(now time.Time) {
	if len(l.hosts) < l.nextSweep && len(l.namespaces) < l.nextSweep {
		return
	}
	for name := range l.hosts {
		forget(l.hosts, name, now)
	}
	for name := range l.namespaces {
		forget(l.namespaces, name, now)
	}
	l.nextSweep = max(sweepAt, 2*len(l.hosts), 2*len(l.namespaces))
}

func lookup(lanes map[string]*hostState, name string) *hostState {
	l, ok := lanes[name]
	if !ok {
		l = new(hostState)
		lanes[name] = l
	}
	return l
}

func forget(lanes map[string]*hostState, name string, now time.Time) {
	if l, ok := lanes[name]; ok && l.idle(now) {
		delete(lanes, name)
	}
}
