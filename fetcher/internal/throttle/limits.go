package throttle

import (
	"time"

	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
)

const (
	// maxWait is how long a request may wait in Acquire for a slot of a fast host.
	maxWait = 25 * time.Millisecond
	// claimedWait is how long a started key may wait there for its slot.
	claimedWait = time.Second
)

// waitOf returns what a ticket has to wait for, or nil if it may have its slot now.
func (t *Throttle) waitOf(ticket *Ticket, now time.Time) *Wait {
	until := later(ticket.lane.host.pausedUntil, ticket.lane.pausedUntil)
	used, full := t.slotsOfHost(ticket, now)
	switch {
	case until.After(now) && !(ticket.urgent && used == 0):
		return &Wait{For: v1.WaitsFor_WAITS_FOR_PAUSE, Pause: until.Sub(now)}
	case full:
		return &Wait{For: v1.WaitsFor_WAITS_FOR_HOST}
	case ticket.state == claimed: // it has a slot of the process
		return nil
	case t.overShare(ticket.lane.namespace, now):
		return &Wait{For: v1.WaitsFor_WAITS_FOR_NAMESPACE_SHARE}
	case t.taken >= t.cfg.Slots:
		return &Wait{For: v1.WaitsFor_WAITS_FOR_SLOTS}
	}
	return nil
}

// slotsOfHost returns how many slots of the host the namespace uses, and reports whether a ticket may have none.
func (t *Throttle) slotsOfHost(ticket *Ticket, now time.Time) (used int, full bool) {
	lane, h, most := ticket.lane, ticket.lane.host, t.cfg.PerHost
	limit := h.limit(lane, most)
	switch {
	case ticket.state == claiming: // a queued key may start a little before its slot comes free
		ahead := h.ahead(limit, t.claimTime, now)
		return lane.used(), lane.used() >= limit+ahead || h.used() >= most+ahead
	case ticket.state == arriving && h.expected(now) >= maxWait: // behind the queued keys, unless the host is fast
		return lane.used(), lane.used() >= limit || h.used() >= most || len(lane.queue) > 0
	}
	return lane.taken, lane.taken >= limit || h.taken >= most
}

// overShare reports whether a namespace has used up its share of the slots while others may wait.
func (t *Throttle) overShare(ns *namespace, now time.Time) bool {
	share := max(1, int(float64(t.cfg.Slots)*t.cfg.Share))
	return ns.used() >= share && now.Before(later(t.backlogUntil, t.contendedUntil))
}

// waitLimit returns how long a request may wait in Acquire.
func (t *Throttle) waitLimit(ticket *Ticket, waitsFor v1.WaitsFor, now time.Time) time.Duration {
	lane, h := ticket.lane, ticket.lane.host
	rounds := 1 + (lane.waiting+len(lane.queue))/h.limit(lane, t.cfg.PerHost)
	switch {
	case waitsFor != v1.WaitsFor_WAITS_FOR_HOST && waitsFor != v1.WaitsFor_WAITS_FOR_NAMESPACE_SHARE:
		return 0
	case ticket.state == claimed:
		return claimedWait
	case time.Duration(rounds)*h.expected(now) < maxWait:
		return maxWait
	}
	return 0
}

// limit returns how many slots of the host a namespace may hold. At least one slot is reserved for
// other namespaces, and as many as they need, up to an equal share for each.
func (h *host) limit(lane *lane, perHost int) int {
	reserved := 0
	for _, other := range h.lanes {
		if other != lane {
			reserved += min(max(1, perHost/len(h.lanes)), other.needs())
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
