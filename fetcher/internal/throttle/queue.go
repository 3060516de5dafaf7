package throttle

import (
	"cmp"
	"slices"
	"time"

	"github.com/kv8s/curl-me-that/proto/pipeline"
)

const (
	// maxQueuedBytes is the maximum memory of the queues. One namespace may use half of the memory
	// that the others leave free.
	maxQueuedBytes = 32 << 20
	// waiterBytes is the memory of a waiter without its payload.
	waiterBytes = 512
	// leaseMargin is how long before its end a lease is no longer claimed.
	leaseMargin = 100 * time.Millisecond
)

// Waiter is a key that waits for a slot of its host.
type Waiter struct {
	Key  pipeline.Key
	Host string
	// Want is the sequence of its want.
	Want uint64
	// Rank orders the keys of a namespace, and Since, the start of the wait, those of one rank.
	Rank  Rank
	Since time.Time
	// Until is the end of its lease.
	Until time.Time
	// Bytes is the size of the payload that Start holds.
	Bytes int
	// Start claims the key and makes its GET with the slot. It runs in its own goroutine.
	Start func(*Ticket)

	lane *lane
}

// Rank is the priority of a key within its namespace.
type Rank int

// Ranks, highest priority first.
const (
	Urgent  Rank = iota // a person requested the fetch
	Wanted              // a new or changed key, or a retry
	Refresh             // a refresh or a recheck
)

// Enqueue queues a key with a lease, if there is memory for it. A key that is already queued keeps
// its waiting time, even with another want.
func (t *Throttle) Enqueue(w *Waiter) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	if old := t.queued[w.Key]; old != nil {
		if old.Since.Before(w.Since) {
			w.Since = old.Since
		}
		t.drop(old)
		old.lane.forget(now)
	}
	lane := t.lane(w.Host, w.Key.Namespace)
	defer lane.forget(now)
	w.lane, w.Bytes = lane, w.Bytes+waiterBytes
	if lane.namespace.bytes+w.Bytes > maxQueuedBytes-t.bytes {
		return
	}
	t.queued[w.Key] = w
	t.resize(lane, w.Bytes)
	at, _ := slices.BinarySearchFunc(lane.queue, w, func(other, w *Waiter) int {
		return cmp.Or(cmp.Compare(other.Rank, w.Rank), other.Since.Compare(w.Since), -1) // behind its equals
	})
	lane.queue = slices.Insert(lane.queue, at, w)
	lane.wake()
	t.dispatch(now)
}

// drop removes a key from its queue.
func (t *Throttle) drop(w *Waiter) {
	delete(t.queued, w.Key)
	t.resize(w.lane, -w.Bytes)
	at := slices.Index(w.lane.queue, w)
	w.lane.queue = slices.Delete(w.lane.queue, at, at+1)
}

func (t *Throttle) resize(lane *lane, by int) {
	t.bytes += by
	lane.namespace.bytes += by
}

// Waits reports whether a key is queued with this want.
func (t *Throttle) Waits(key pipeline.Key, want uint64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	w := t.queued[key]
	return w != nil && w.Want == want
}

// Queued returns the number of queued keys.
func (t *Throttle) Queued() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.queued)
}

// assignSlots assigns free slots after a change at a lane: first to requests for its host that wait in
// memory, then to queued keys. It forgets the lane if it is idle.
func (t *Throttle) assignSlots(lane *lane, now time.Time) {
	h := lane.host
	for _, ticket := range h.waiting {
		if ticket.state != getting && t.busy(ticket, now) == nil {
			ticket.take(now)
			close(ticket.granted)
		}
	}
	for _, other := range h.lanes {
		other.wake()
	}
	t.dispatch(now)
	lane.forget(now)
}

// dispatch starts queued keys while there is room for them. The namespace that holds the fewest
// slots comes first.
func (t *Throttle) dispatch(now time.Time) {
	for len(t.queued) > 0 && t.taken < t.cfg.Slots && !t.stopped {
		var fewest *namespace
		for _, ns := range t.namespaces {
			if len(ns.ready) > 0 && (fewest == nil || ns.used() < fewest.used()) && !t.overShare(ns, now) {
				fewest = ns
			}
		}
		if fewest == nil {
			return
		}
		for lane := range fewest.ready {
			t.start(lane, now)
			break
		}
	}
}

// start starts the next key of a lane, if there is room for it.
func (t *Throttle) start(lane *lane, now time.Time) {
	delete(lane.namespace.ready, lane)
	for len(lane.queue) > 0 && lane.queue[0].Until.Before(now.Add(leaseMargin)) {
		t.drop(lane.queue[0]) // another fetcher may have it
	}
	if len(lane.queue) == 0 {
		lane.forget(now)
		return
	}
	w := lane.queue[0]
	ticket := &Ticket{lane: lane, state: claiming, urgent: w.Rank == Urgent, began: now}
	if t.busy(ticket, now) != nil {
		return
	}
	t.drop(w)
	lane.wake()
	t.taken++
	ticket.count(0, 1)
	t.running.Go(func() {
		defer ticket.End()
		w.Start(ticket)
	})
}

// maxLease is the maximum time after which the broker delivers a queued key again, perhaps to
// another fetcher.
const maxLease = time.Minute

// Lease returns the duration of a lease. First leases have more jitter, because many keys may arrive
// at once. random is in [0, 1).
func Lease(first bool, random float64) time.Duration {
	spread := maxLease / 10
	if first {
		spread = maxLease * 2 / 3
	}
	return maxLease - time.Duration(random*float64(spread))
}
