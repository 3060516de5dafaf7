package throttle

import (
	"slices"
	"time"
)

// hostState is what is under way for one host.
type hostState struct {
	meter
	// tenants are the namespaces that use the host, by name.
	tenants map[string]*tenant
	// waiting are the requests that wait in memory, in the order of asking.
	waiting []*pending
	// waitedInVain reports whether requests have waited in vain for the first slot ever
	// given back.
	waitedInVain bool
	// pause of the host for all namespaces.
	pause pause
	// guesses counts those that are remembered of all hosts.
	guesses *int
}

// tenant is what one namespace has under way for one host.
type tenant struct {
	clock
	held, waiting int
	// pausedUntil is when the pause of the host ends for the namespace whose
	// request it has refused.
	pausedUntil time.Time
}

// pending is a request that waits for a slot, which it gets by granted being
// closed.
type pending struct {
	granted   chan struct{}
	rank      int
	tenant    *tenant
	name      string
	namespace *namespaceState
}

// namespaceState is what one namespace has under way for all hosts.
type namespaceState struct {
	meter
	clock
	waiting int
}

func (n *namespaceState) idle(now time.Time) bool {
	return n.held == 0 && n.waiting == 0 && !n.queued(now)
}

func newHostState(guesses *int) *hostState {
	return &hostState{meter: meter{guess: hostGuess}, tenants: map[string]*tenant{}, guesses: guesses}
}

func (h *hostState) tenant(namespace string) *tenant {
	t, ok := h.tenants[namespace]
	if !ok {
		t = &tenant{clock: clock{guesses: guesses{total: h.guesses}}}
		h.tenants[namespace] = t
	}
	return t
}

// forget drops a namespace that is idle.
func (h *hostState) forget(namespace string) {
	h.tenants[namespace].guesses.drop(0)
	delete(h.tenants, namespace)
}

func (t *tenant) idle(now time.Time) bool {
	return t.held == 0 && t.waiting == 0 && !t.queued(now) && !t.pausedUntil.After(now)
}

// limit is how many slots of the host a namespace may hold: all but what the
// other namespaces have use for, up to an equal share of each, and but one in
// any case.
func (h *hostState) limit(namespace string, perHost int, now time.Time) int {
	kept, share := 0, max(1, perHost/max(1, len(h.tenants)))
	for name, other := range h.tenants {
		switch {
		case name == namespace:
		case other.idle(now):
			h.forget(name)
		case other.queued(now):
			kept += share
		default:
			kept += min(share, other.held+other.waiting)
		}
		if kept >= perHost {
			break
		}
	}
	return max(1, perHost-max(1, kept))
}

// takeWaiting takes the request out of the queue that gets the slot that comes free:
// the most urgent, of those one of the namespace that holds the fewest, of
// those the oldest. There may be none.
func (h *hostState) takeWaiting(perHost int, now time.Time) *pending {
	best := -1
	for i, p := range h.waiting {
		if p.tenant.held >= h.limit(p.name, perHost, now) {
			continue
		}
		if best < 0 || p.rank < h.waiting[best].rank ||
			p.rank == h.waiting[best].rank && p.tenant.held < h.waiting[best].tenant.held {
			best = i
		}
	}
	if best < 0 {
		return nil
	}
	p := h.waiting[best]
	h.waiting = slices.Delete(h.waiting, best, best+1)
	return p
}

// idle reports whether nothing needs to be known of the host.
func (h *hostState) idle(now time.Time) bool {
	for name, t := range h.tenants {
		if !t.idle(now) {
			return false
		}
		h.forget(name)
	}
	return h.held == 0 && len(h.waiting) == 0 && !h.pause.until.After(now)
}

// State of a host, from a closed set.
type State string

// States of hosts. A host is in the first that fits, or in none.
const (
	paused State = "paused" // it has asked for a pause
	queued State = "queued" // there are reservations to come
	active State = "active" // GETs are under way
)

// States returns all states.
func States() []State { return []State{paused, queued, active} }

func (h *hostState) state(now time.Time) State {
	if h.pause.until.After(now) {
		return paused
	}
	for _, t := range h.tenants {
		if t.queued(now) {
			return queued
		}
	}
	if h.held > 0 {
		return active
	}
	return ""
}
