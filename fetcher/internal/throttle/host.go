package throttle

import "time"

// host is the state of one host.
type host struct {
	counts
	name string
	// lanes has a lane for each namespace that uses the host, by name.
	lanes map[string]*lane
	// waiting are the requests that wait in Acquire, oldest first.
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

// lane has the slots and the queue of one namespace at one host.
type lane struct {
	counts
	throttle  *Throttle
	host      *host
	namespace *namespace
	// queue has the queued keys, held counts the held ones, and waiting the requests that wait in Acquire.
	queue   []*QueuedKey
	held    int
	waiting int
	// pausedUntil is the end of the pause that the host requested from this namespace.
	pausedUntil time.Time
}

// namespace is the state of one namespace at all hosts.
type namespace struct {
	counts
	name string
	// bytes is the memory of its queued keys.
	bytes int
	// lanes counts its lanes. The ones in ready may get a slot for a queued key.
	lanes int
	ready map[*lane]struct{}
}

// lane returns the lane of a namespace at a host.
func (t *Throttle) lane(name, ns string) *lane {
	h := t.hosts[name]
	if h == nil {
		h = &host{name: name, lanes: map[string]*lane{}}
		t.hosts[name] = h
	}
	if t.namespaces[ns] == nil {
		t.namespaces[ns] = &namespace{name: ns, ready: map[*lane]struct{}{}}
	}
	if h.lanes[ns] == nil {
		h.lanes[ns] = &lane{throttle: t, host: h, namespace: t.namespaces[ns]}
		t.namespaces[ns].lanes++
	}
	return h.lanes[ns]
}

// forget drops the state of an idle lane, and then of a namespace and a host without lanes.
func (l *lane) forget(now time.Time) {
	throttle, h, ns := l.throttle, l.host, l.namespace
	if l.needs() == 0 && l.held == 0 && !l.pausedUntil.After(now) && h.lanes[ns.name] == l {
		delete(h.lanes, ns.name)
		delete(ns.ready, l)
		if ns.lanes--; ns.lanes == 0 {
			delete(throttle.namespaces, ns.name)
		}
	}
	if len(h.lanes) == 0 && now.Sub(h.lastPaused) >= rememberFor && throttle.hosts[h.name] == h {
		delete(throttle.hosts, h.name)
	}
}

// wake lets the next dispatch consider the queue.
func (l *lane) wake() {
	if len(l.queue) > 0 {
		l.namespace.ready[l] = struct{}{}
	}
}

// needs returns how many slots of the host the namespace could use.
func (l *lane) needs() int { return l.used() + l.waiting + len(l.queue) }

// States returns the states of hosts: paused (at the host's request), queued (keys wait for a slot)
// and active (with running GETs).
func States() []string { return []string{"paused", "queued", "active"} }

// Hosts counts the hosts by state, each in the first state that applies.
func (t *Throttle) Hosts() map[string]float64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	counts := map[string]float64{"paused": 0, "queued": 0, "active": 0}
	for _, h := range t.hosts {
		queued := 0
		for _, lane := range h.lanes {
			queued += len(lane.queue)
		}
		switch {
		case h.pausedUntil.After(time.Now()):
			counts["paused"]++
		case queued > 0:
			counts["queued"]++
		case h.taken > 0:
			counts["active"]++
		}
	}
	return counts
}
