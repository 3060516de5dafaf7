package throttle

import "time"

// host is the state of one host.
type host struct {
	counts
	name string
	// tenants are the namespaces that use the host, by name.
	tenants map[string]*tenant
	// waiting are the requests that wait in memory, oldest first.
	waiting []*Ticket
	// lastTaken is when the last slot was taken, and mean the moving average of the duration of GETs.
	lastTaken time.Time
	mean      time.Duration
	// pauses counts how often the host has asked for a pause in a row. Concurrent GETs count once.
	pauses     uint
	lastPaused time.Time
	// pausedUntil is the end of the pause for all namespaces.
	pausedUntil time.Time
}

// counts are numbers of slots that GETs have taken, and that started keys will need.
type counts struct{ taken, claiming int }

func (c counts) used() int { return c.taken + c.claiming }

// tenant is the state of one namespace at one host.
type tenant struct {
	counts
	throttle  *Throttle
	host      *host
	namespace *namespace
	// queue has the waiting keys, and waiting counts the requests that wait in memory.
	queue   []*Waiter
	waiting int
	// pausedUntil is the end of the pause that the host requested from this namespace.
	pausedUntil time.Time
}

// namespace is the state of one namespace at all hosts.
type namespace struct {
	counts
	name string
	// bytes is the memory of its waiting keys.
	bytes int
	// tenants counts its hosts. The ones in ready may get a slot for a waiting key.
	tenants int
	ready   map[*tenant]struct{}
}

// tenant returns the state of a namespace at a host.
func (t *Throttle) tenant(name, ns string) *tenant {
	h := t.hosts[name]
	if h == nil {
		h = &host{name: name, tenants: map[string]*tenant{}}
		t.hosts[name] = h
	}
	if t.namespaces[ns] == nil {
		t.namespaces[ns] = &namespace{name: ns, ready: map[*tenant]struct{}{}}
	}
	if h.tenants[ns] == nil {
		h.tenants[ns] = &tenant{throttle: t, host: h, namespace: t.namespaces[ns]}
		t.namespaces[ns].tenants++
	}
	return h.tenants[ns]
}

// forget drops the state of an idle tenant, and then of a namespace and a host without tenants.
func (t *tenant) forget(now time.Time) {
	throttle, h, ns := t.throttle, t.host, t.namespace
	if t.needs() == 0 && !t.pausedUntil.After(now) && h.tenants[ns.name] == t {
		delete(h.tenants, ns.name)
		delete(ns.ready, t)
		if ns.tenants--; ns.tenants == 0 {
			delete(throttle.namespaces, ns.name)
		}
	}
	if len(h.tenants) == 0 && now.Sub(h.lastPaused) >= rememberFor && throttle.hosts[h.name] == h {
		delete(throttle.hosts, h.name)
	}
}

// wake lets the next dispatch consider the queue.
func (t *tenant) wake() {
	if len(t.queue) > 0 {
		t.namespace.ready[t] = struct{}{}
	}
}

// needs returns how many slots of the host the namespace could use.
func (t *tenant) needs() int { return t.used() + t.waiting + len(t.queue) }

// limit returns how many slots of the host a namespace may hold. At least one slot is reserved for
// other namespaces, and as many as they need, up to an equal share for each.
func (h *host) limit(n *tenant, perHost int) int {
	reserved := 0
	for _, other := range h.tenants {
		if other != n {
			reserved += min(max(1, perHost/len(h.tenants)), other.needs())
		}
	}
	return max(1, perHost-max(1, reserved))
}

// expected estimates the duration of a GET: the mean, or the time since a slot was last taken, if
// that is longer and GETs are running.
func (h *host) expected(now time.Time) time.Duration {
	if h.taken == 0 {
		return h.mean
	}
	return max(h.mean, now.Sub(h.lastTaken))
}

// ahead returns how many keys may be started before their slots come free: one, and as many as come
// free during four claims. It is zero if a started key might wait longer than claimedWait.
func (h *host) ahead(limit int, claim time.Duration, now time.Time) int {
	perSecond := float64(limit) / h.expected(now).Seconds()
	if h.mean == 0 || perSecond*claimedWait.Seconds() < 2 {
		return 0
	}
	return min(limit, 1+int(4*perSecond*claim.Seconds()))
}

// States returns the states of hosts: paused (at the host's request), queued (keys wait for a slot)
// and active (with running GETs).
func States() []string { return []string{"paused", "queued", "active"} }

// Hosts counts the hosts by state, each in the first state that applies.
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
		case h.pausedUntil.After(time.Now()):
			counts["paused"]++
		case waiting > 0:
			counts["queued"]++
		case h.taken > 0:
			counts["active"]++
		}
	}
	return counts
}
