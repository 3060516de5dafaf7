package throttle

import "time"

// host is the work for one host.
type host struct {
	counts
	name string
	// tenants are the namespaces that use the host, by name.
	tenants map[string]*tenant
	// waiting are the requests that wait in memory, oldest first.
	waiting []*Slot
	// taken is when the last slot was taken, and mean the moving average of how long slots were held.
	taken time.Time
	mean  time.Duration
	// refusals counts pauses in a row, of which the last began at refused.
	refusals uint
	refused  time.Time
	// restsUntil is the end of the pause for all namespaces.
	restsUntil time.Time
}

// counts are slots: held by GETs, and expected by started keys.
type counts struct{ held, claiming int }

// used counts both.
func (c counts) used() int { return c.held + c.claiming }

// tenant is the work of one namespace for one host.
type tenant struct {
	counts
	throttle  *Throttle
	host      *host
	namespace *namespace
	// queue are the waiting keys, and waiting counts the requests that wait in memory.
	queue   []*Waiter
	waiting int
	// restsUntil is the end of the pause for the namespace whose request the host has refused.
	restsUntil time.Time
}

// namespace is the work of one namespace for all hosts.
type namespace struct {
	counts
	name string
	// bytes is the memory of its waiting keys.
	bytes int
	// tenants counts the hosts that it uses. Those in ready may have room for a key.
	tenants int
	ready   map[*tenant]struct{}
}

// tenant returns the state of a namespace at a host.
func (t *Throttle) tenant(name, of string) *tenant {
	h := t.hosts[name]
	if h == nil {
		h = &host{name: name, tenants: map[string]*tenant{}}
		t.hosts[name] = h
	}
	if t.namespaces[of] == nil {
		t.namespaces[of] = &namespace{name: of, ready: map[*tenant]struct{}{}}
	}
	if h.tenants[of] == nil {
		h.tenants[of] = &tenant{throttle: t, host: h, namespace: t.namespaces[of]}
		t.namespaces[of].tenants++
	}
	return h.tenants[of]
}

// forget drops the state of a namespace at a host, and that of the host, if nothing needs it.
func (n *tenant) forget(now time.Time) {
	t, h, of := n.throttle, n.host, n.namespace
	if n.needs() == 0 && !n.restsUntil.After(now) && h.tenants[of.name] == n {
		delete(h.tenants, of.name)
		delete(of.ready, n)
		if of.tenants--; of.tenants == 0 {
			delete(t.namespaces, of.name)
		}
	}
	if len(h.tenants) == 0 && now.Sub(h.refused) >= rememberFor && t.hosts[h.name] == h {
		delete(t.hosts, h.name)
	}
}

// wake lets the next dispatch consider the queue.
func (n *tenant) wake() {
	if len(n.queue) > 0 {
		n.namespace.ready[n] = struct{}{}
	}
}

// needs is how many slots of the host the namespace could use.
func (n *tenant) needs() int { return n.used() + n.waiting + len(n.queue) }

// limit is how many slots of the host a namespace may hold: all but those that the other
// namespaces need, up to an equal share of each, and one less in any case.
func (h *host) limit(of *tenant, perHost int) int {
	kept := 0
	for _, other := range h.tenants {
		if other != of {
			kept += min(max(1, perHost/len(h.tenants)), other.needs())
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

// ahead is how many keys may be started before their slots come free: as many slots as come free
// in a few times the duration of a claim, and one more unless it would wait for long.
func (h *host) ahead(limit int, claim time.Duration, now time.Time) int {
	perSecond := float64(limit) / h.expected(now).Seconds()
	if h.mean == 0 || perSecond*claimedWait.Seconds() < 2 {
		return 0
	}
	return min(limit, 1+int(4*perSecond*claim.Seconds()))
}

// States returns the states of hosts: paused hosts have asked for a pause, keys of queued ones wait
// for a slot, and active ones have GETs under way. A host is in the first that fits, or in none.
func States() []string { return []string{"paused", "queued", "active"} }

// Hosts counts the hosts by state.
func (t *Throttle) Hosts() map[string]float64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	counts := map[string]float64{"paused": 0, "queued": 0, "active": 0}
	for _, h := range t.hosts {
		waiting := 0
		for _, n := range h.tenants {
			waiting += len(n.queue)
		}
		switch {
		case h.restsUntil.After(time.Now()):
			counts["paused"]++
		case waiting > 0:
			counts["queued"]++
		case h.held > 0:
			counts["active"]++
		}
	}
	return counts
}
