package throttle

import "time"

const (
	// claimTime is the time that a claim may take: keys are started by so much
	// before a slot is expected to come free.
	claimTime = 50 * time.Millisecond
	// meanWeight is the part that one GET has in the moving average.
	meanWeight = 8
)

// hostState is the work under way for one host.
type hostState struct {
	throttle *Throttle
	// tenants are the namespaces that use the host, by name.
	tenants map[string]*tenant
	// held counts the slots, and claiming the started keys without one.
	held, claiming int
	// taken is when the last slot was taken, and mean the moving average of how long
	// they were held; 0: none was given back yet.
	taken time.Time
	mean  time.Duration
	// waitedInVain reports whether a request has waited in vain for the first slot
	// ever given back.
	waitedInVain bool
	// waiting are the requests that wait in memory, in the order of asking.
	waiting []*attempt
	// pause of the host for all namespaces.
	pause pause
}

// tenant is the work of one namespace for one host.
type tenant struct {
	host      *hostState
	name      string
	namespace *namespaceState
	queue     queue
	// ready reports whether the namespace has it among those to be started.
	ready bool
	// held and claiming count as those of the host, waiting counts requests in memory.
	held, claiming, waiting int
	// pausedUntil is when the pause of the host ends for the namespace whose
	// request it has refused.
	pausedUntil time.Time
}

// namespaceState is the work of one namespace for all hosts.
type namespaceState struct {
	// held counts the slots, and the started keys without one.
	held int
	// bytes is the memory of the keys that wait, and asked when the last one came.
	bytes int64
	asked time.Time
	// ready are the tenants whose first key may possibly be started.
	ready []*tenant
}

func (h *hostState) tenant(name string, namespace *namespaceState) *tenant {
	n, ok := h.tenants[name]
	if !ok {
		n = &tenant{host: h, name: name, namespace: namespace}
		h.tenants[name] = n
	}
	return n
}

// wake lets the next dispatch look at the queue.
func (n *tenant) wake() {
	if !n.ready && len(n.queue) > 0 {
		n.ready = true
		n.namespace.ready = append(n.namespace.ready, n)
		n.host.throttle.ready[n.namespace] = struct{}{}
	}
}

func (n *tenant) idle(now time.Time) bool {
	return n.needs() == 0 && !n.pausedUntil.After(now)
}

// limit is how many slots of the host a namespace may hold: all but those that the
// other namespaces need, up to an equal share of each, and one less in any case.
func (h *hostState) limit(of *tenant, perHost int) int {
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

// needs is how many slots of the host the namespace could use.
func (n *tenant) needs() int { return n.held + n.claiming + n.waiting + len(n.queue) }

// expected is how long a GET will probably take. While the slots are held, it is at
// least as long as the last one has been.
func (h *hostState) expected(now time.Time) time.Duration {
	if h.held == 0 {
		return h.mean
	}
	return max(h.mean, now.Sub(h.taken))
}

// quick reports whether a slot comes free within a time.
func (h *hostState) quick(now time.Time, within time.Duration) bool {
	return h.mean > 0 && h.expected(now) <= within
}

// ahead is how many slots will probably come free within claimTime.
func (h *hostState) ahead(limit int, now time.Time) int {
	if h.mean == 0 {
		return 0
	}
	return int(min(time.Duration(limit), time.Duration(limit)*claimTime/h.expected(now)))
}

// giveBack notes that a slot was held for so long.
func (h *hostState) giveBack(held time.Duration) {
	held = max(held, time.Microsecond)
	if h.held--; h.mean == 0 {
		h.mean = held
	}
	h.mean += (held - h.mean) / meanWeight
}

// wake lets the next dispatch look at all queues of the host.
func (h *hostState) wake() {
	for _, n := range h.tenants {
		n.wake()
	}
}

// forget drops idle tenants, and reports whether nothing needs to be known of the host.
func (h *hostState) forget(now time.Time) bool {
	for name, n := range h.tenants {
		if n.idle(now) {
			delete(h.tenants, name)
		}
	}
	return len(h.tenants) == 0 && !h.pause.until.After(now)
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

func (h *hostState) state(now time.Time) State {
	if h.pause.until.After(now) {
		return paused
	}
	for _, n := range h.tenants {
		if len(n.queue) > 0 {
			return queued
		}
	}
	if h.held > 0 {
		return active
	}
	return ""
}
