package throttle

import (
	"cmp"
	"slices"
	"sort"
	"time"

	"github.com/kv8s/curl-me-that/proto/pipeline"
)

const (
	// waiterBytes is the memory of a waiter besides its due.
	waiterBytes = 512
	// leaseMargin is how long before its end a lease is no longer claimed.
	leaseMargin = 100 * time.Millisecond
)

// Waiter is a key that waits for a slot of its host.
type Waiter struct {
	Key  pipeline.Key
	Host string
	// Want is the sequence of its want, and Timer that of its lease.
	Want, Timer uint64
	// Due is the payload of the lease, and Trace its trace context.
	Due   []byte
	Trace string
	// Rank orders the keys of a namespace, and Since those of one rank.
	Rank  Rank
	Since time.Time

	until  time.Time
	tenant *tenant
}

// Rank is the importance of a key among those of its namespace.
type Rank int

// Ranks, the first before the others.
const (
	Urgent  Rank = iota // a person asks for it now
	Wanted              // it has no body yet, was changed, or is retried
	Refresh             // it has a body
)

func (w *Waiter) size() int64 { return waiterBytes + int64(len(w.Due)+len(w.Trace)) }

// Enqueue lets a key wait whose lease was set just now. A key that waits already keeps its place,
// also with another want. It reports whether there is room.
func (t *Throttle) Enqueue(w *Waiter, lease time.Duration) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.deps.Now()
	if old := t.queued[w.Key]; old != nil {
		if old.Since.Before(w.Since) {
			w.Since = old.Since
		}
		t.drop(old)
	}
	w.tenant, w.until = t.tenant(w.Host, w.Key.Namespace), now.Add(lease-leaseMargin)
	if w.tenant.namespace.bytes+w.size() > t.cfg.MaxQueued-t.bytes {
		return false
	}
	t.queued[w.Key] = w
	t.bytes += w.size()
	w.tenant.namespace.bytes += w.size()
	queue := &w.tenant.queue
	after := sort.Search(len(*queue), func(i int) bool { return w.before((*queue)[i]) })
	*queue = slices.Insert(*queue, after, w)
	w.tenant.wake()
	t.dispatch(now)
	return true
}

func (w *Waiter) before(other *Waiter) bool {
	return cmp.Or(cmp.Compare(w.Rank, other.Rank), w.Since.Compare(other.Since)) < 0
}

// drop takes a key out of its queue.
func (t *Throttle) drop(w *Waiter) {
	delete(t.queued, w.Key)
	t.bytes -= w.size()
	w.tenant.namespace.bytes -= w.size()
	if queue := &w.tenant.queue; (*queue)[0] == w {
		*queue = (*queue)[1:]
	} else {
		at := slices.Index(*queue, w)
		*queue = slices.Delete(*queue, at, at+1)
	}
}

// Waits reports whether a key waits with this want.
func (t *Throttle) Waits(key pipeline.Key, want uint64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	w := t.queued[key]
	return w != nil && w.Want == want
}

// Queued returns the number of keys that wait.
func (t *Throttle) Queued() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.queued)
}

// maxLease is the maximum time after which the broker delivers a waiting key again,
// perhaps to another fetcher.
const maxLease = time.Minute

// Lease is how long a key is left to a queue. The first lease spreads keys that come at
// once. Random is from [0, 1).
func Lease(first bool, random float64) time.Duration {
	spread := maxLease / 10
	if first {
		spread = maxLease * 2 / 3
	}
	return maxLease - time.Duration(random*float64(spread))
}
