package throttle

import (
	"cmp"
	"slices"
	"time"

	"github.com/kv8s/curl-me-that/proto/pipeline"
)

const (
	// maxQueuedBytes is the maximum memory of queued and held keys. One namespace may use half of the memory
	// that the others leave free.
	maxQueuedBytes = 32 << 20
	// queuedKeyBytes is the memory of a queued key without its payload.
	queuedKeyBytes = 512
	// leaseMargin is how long before its end a lease is no longer claimed.
	leaseMargin = 100 * time.Millisecond
)

// QueuedKey is a key with a lease that waits in memory for a slot of its host.
type QueuedKey struct {
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
	// held reports whether the key must not start yet.
	held bool
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
func (t *Throttle) Enqueue(k *QueuedKey) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.enqueue(k, time.Now())
}

// Hold is like Enqueue, but the key does not start before Unhold.
func (t *Throttle) Hold(k *QueuedKey) {
	t.mu.Lock()
	defer t.mu.Unlock()
	k.held = true
	t.enqueue(k, time.Now())
}

// Unhold lets a held key start.
func (t *Throttle) Unhold(key pipeline.Key) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if k := t.queued[key]; k != nil && k.held {
		k.held = false
		k.lane.held--
		t.lineUp(k, time.Now())
	}
}

func (t *Throttle) enqueue(k *QueuedKey, now time.Time) {
	if old := t.queued[k.Key]; old != nil {
		if old.Since.Before(k.Since) {
			k.Since = old.Since
		}
		k.held = k.held || old.held && old.Want == k.Want
		t.drop(old)
		old.lane.forget(now)
	}
	lane := t.lane(k.Host, k.Key.Namespace)
	defer lane.forget(now)
	k.lane, k.Bytes = lane, k.Bytes+queuedKeyBytes
	if lane.namespace.bytes+k.Bytes > maxQueuedBytes-t.bytes {
		return
	}
	t.queued[k.Key] = k
	t.resize(lane, k.Bytes)
	if k.held {
		lane.held++
	} else {
		t.lineUp(k, now)
	}
}

// lineUp lets a key start in its turn.
func (t *Throttle) lineUp(k *QueuedKey, now time.Time) {
	lane := k.lane
	at, _ := slices.BinarySearchFunc(lane.queue, k, func(other, k *QueuedKey) int {
		return cmp.Or(cmp.Compare(other.Rank, k.Rank), other.Since.Compare(k.Since), -1) // behind its equals
	})
	lane.queue = slices.Insert(lane.queue, at, k)
	lane.wake()
	t.dispatch(now)
}

// drop removes a key from its queue.
func (t *Throttle) drop(k *QueuedKey) {
	delete(t.queued, k.Key)
	t.resize(k.lane, -k.Bytes)
	if k.held {
		k.lane.held--
		return
	}
	at := slices.Index(k.lane.queue, k)
	k.lane.queue = slices.Delete(k.lane.queue, at, at+1)
}

func (t *Throttle) resize(lane *lane, by int) {
	t.bytes += by
	lane.namespace.bytes += by
}

// IsQueued reports whether a key is queued or held with this want.
func (t *Throttle) IsQueued(key pipeline.Key, want uint64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	k := t.queued[key]
	return k != nil && k.Want == want
}

// Queued returns the number of queued and held keys.
func (t *Throttle) Queued() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.queued)
}

// assignSlots assigns free slots after a change at a lane: first to requests for its host that wait in
// Acquire, then to queued keys. It forgets the lane if it is idle.
func (t *Throttle) assignSlots(lane *lane, now time.Time) {
	h := lane.host
	for _, ticket := range h.waiting {
		if ticket.state != getting && t.waitOf(ticket, now) == nil {
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

// dispatch starts queued keys while there is room for them. The namespace that holds the fewest slots comes first.
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
	k := lane.queue[0]
	ticket := &Ticket{lane: lane, state: claiming, urgent: k.Rank == Urgent, began: now}
	if t.waitOf(ticket, now) != nil {
		return
	}
	t.drop(k)
	lane.wake()
	t.taken++
	ticket.count(0, 1)
	t.running.Go(func() {
		defer ticket.End()
		k.Start(ticket)
	})
}

// maxLease is the maximum time after which the broker delivers a queued key again, perhaps to another fetcher.
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
