package throttle

import "time"

// meanWeight is the divisor for one duration in a moving average.
const meanWeight = 8

// counts are the slots of a host: held by GETs, and expected by started keys.
type counts struct{ held, claiming int }

// host is the work for one host.
type host struct {
	counts
	// tenants are the namespaces that use the host, by name.
	tenants map[string]*tenant
	// waiting are the keys that wait in memory, oldest first.
	waiting []*attempt
	// taken is when the last slot was taken, and mean the moving average of how long they were held.
	taken time.Time
	mean  time.Duration
	// refusals counts pauses in a row, of which the last began at refused.
	refusals uint
	refused  time.Time
	// restsUntil is the end of the pause for all namespaces.
	restsUntil time.Time
}

// tenant is the work of one namespace for one host.
type tenant struct {
	counts
	host      *host
	throttle  *Throttle
	namespace *namespace
	// queue are the waiting keys, and waiting counts those that wait in memory only.
	queue   []*Waiter
	waiting int
	// ready reports whether the namespace has it among its ready ones.
	ready bool
	// placed counts slots of the process, which are held until the outcome is published.
	placed int
	// restsUntil is the end of the pause for the namespace whose request the host has refused.
	restsUntil time.Time
}

// namespace is the work of one namespace for all hosts.
type namespace struct {
	name string
	// held counts the slots of all hosts, also of started keys.
	held int
	// bytes is the memory of its waiting keys.
	bytes int64
	// tenants counts the hosts that it uses.
	tenants int
	// ready are the tenants whose first key may get a slot.
	ready []*tenant
}

// tenant returns the state of a namespace at a host.
func (t *Throttle) tenant(name, of string) *tenant {
	h := t.hosts[name]
	if h == nil {
		h = &host{tenants: map[string]*tenant{}}
		t.hosts[name] = h
	}
	if t.namespaces[of] == nil {
		t.namespaces[of] = &namespace{name: of}
	}
	if h.tenants[of] == nil {
		h.tenants[of] = &tenant{host: h, throttle: t, namespace: t.namespaces[of]}
		t.namespaces[of].tenants++
	}
	return h.tenants[of]
}

// forget drops the state of a namespace at a host if nothing needs it.
func (n *tenant) forget(now time.Time) {
	if n.needs() > 0 || n.placed > 0 || n.restsUntil.After(now) || n.host.tenants[n.namespace.name] != n {
		return
	}
	delete(n.host.tenants, n.namespace.name)
	if n.namespace.tenants--; n.namespace.tenants == 0 {
		delete(n.throttle.namespaces, n.namespace.name)
	}
}

// wake lets the next dispatch look at the queue.
func (n *tenant) wake() {
	if !n.ready && len(n.queue) > 0 {
		n.ready = true
		n.namespace.ready = append(n.namespace.ready, n)
		n.throttle.ready[n.namespace] = struct{}{}
	}
}

// needs is how many slots of the host the namespace could use.
func (n *tenant) needs() int { return n.held + n.claiming + n.waiting + len(n.queue) }

// limit is how many slots of the host a namespace may hold: all but those that the other
// namespaces need, up to an equal share of each, and one less in any case.
func (h *host) limit(of *tenant, perHost int) int {
	users := 1
	for _, other := range h.tenants {
		if other != of && other.needs() > 0 {
			users++
		}
	}
	kept := 0
	for _, other := range h.tenants {
		if other != of {
			kept += min(max(1, perHost/users), other.needs())
		}
	}
	return max(1, perHost-max(1, kept))
}

// expected is how long a GET will probably take. While slots are held, it is at least as long as
// the last one has been.
func (h *host) expected(now time.Time) time.Duration {
	if h.held == 0 {
		return h.mean
	}
	return max(h.mean, now.Sub(h.taken))
}

// quick reports whether a slot comes free within a time.
func (h *host) quick(now time.Time, within time.Duration) bool {
	return h.mean > 0 && h.expected(now) <= within
}

// ahead is how many keys may be started before their slots come free: as many slots as come free
// in a few times the time that a claim takes, and one more unless it would wait for long.
func (h *host) ahead(limit int, claim time.Duration, now time.Time) int {
	perSecond := float64(limit) / h.expected(now).Seconds()
	if h.mean == 0 || perSecond*claimedWait.Seconds() < 2 {
		return 0
	}
	return min(limit, 1+int(4*perSecond*claim.Seconds()))
}

// State of a host, from a closed set.
type State string

// States of hosts. A host is in the first that fits, or in none.
const (
	paused State = "paused" // it has asked for a pause
	queued State = "queued" // keys wait for a slot
	active State = "active" // GETs are under way
)

// States returns all states.
func States() []State { return []State{paused, queued, active} }

// Hosts counts the hosts in each state, by its name.
func (t *Throttle) Hosts() map[string]float64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.deps.Now()
	counts := map[string]float64{string(paused): 0, string(queued): 0, string(active): 0}
	for _, h := range t.hosts {
		waiting := 0
		for _, n := range h.tenants {
			waiting += len(n.queue)
		}
		switch {
		case h.restsUntil.After(now):
			counts[string(paused)]++
		case waiting > 0:
			counts[string(queued)]++
		case h.held > 0:
			counts[string(active)]++
		}
	}
	return counts
}
