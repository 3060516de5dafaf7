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

	tenant *tenant
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
		old.tenant.forget(now)
	}
	n := t.tenant(w.Host, w.Key.Namespace)
	defer n.forget(now)
	w.tenant, w.Bytes = n, w.Bytes+waiterBytes
	if n.namespace.bytes+w.Bytes > maxQueuedBytes-t.bytes {
		return
	}
	t.queued[w.Key] = w
	t.resize(n, w.Bytes)
	at, _ := slices.BinarySearchFunc(n.queue, w, func(other, w *Waiter) int {
		return cmp.Or(cmp.Compare(other.Rank, w.Rank), other.Since.Compare(w.Since), -1) // behind its equals
	})
	n.queue = slices.Insert(n.queue, at, w)
	n.wake()
	t.dispatch(now)
}

// drop removes a key from its queue.
func (t *Throttle) drop(w *Waiter) {
	delete(t.queued, w.Key)
	t.resize(w.tenant, -w.Bytes)
	at := slices.Index(w.tenant.queue, w)
	w.tenant.queue = slices.Delete(w.tenant.queue, at, at+1)
}

func (t *Throttle) resize(n *tenant, by int) {
	t.bytes += by
	n.namespace.bytes += by
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
