package throttle

import (
	"container/heap"
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
	index  int
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

// Enqueue lets a key wait whose lease was set just now for so long. A key that waits
// already keeps its place, also with another want. It reports whether there is room.
func (t *Throttle) Enqueue(w *Waiter, lease time.Duration) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.now()
	if old, ok := t.queued[w.Key]; ok {
		if old.Since.Before(w.Since) {
			w.Since = old.Since
		}
		t.drop(old)
	}
	host, namespace := t.host(w.Host), t.namespace(w.Key.Namespace)
	if namespace.bytes+w.size() > t.cfg.MaxQueued-t.bytes {
		return false
	}
	w.tenant, w.until = host.tenant(w.Key.Namespace, namespace), now.Add(lease-leaseMargin)
	t.queued[w.Key] = w
	t.bytes += w.size()
	namespace.bytes += w.size()
	heap.Push(&w.tenant.queue, w)
	w.tenant.wake()
	t.dispatch(now)
	return true
}

// Waits reports whether a key waits with this want.
func (t *Throttle) Waits(key pipeline.Key, want uint64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	w, ok := t.queued[key]
	return ok && w.Want == want
}

// Queued returns the number of keys that wait.
func (t *Throttle) Queued() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.queued)
}

// drop takes a key out of its queue.
func (t *Throttle) drop(w *Waiter) {
	heap.Remove(&w.tenant.queue, w.index)
	delete(t.queued, w.Key)
	t.bytes -= w.size()
	w.tenant.namespace.bytes -= w.size()
}

// queue is a heap of waiters.
type queue []*Waiter

func (q queue) Len() int { return len(q) }

func (q queue) Less(i, j int) bool {
	if q[i].Rank != q[j].Rank {
		return q[i].Rank < q[j].Rank
	}
	return q[i].Since.Before(q[j].Since)
}

func (q queue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].index, q[j].index = i, j
}

func (q *queue) Push(x any) {
	w := x.(*Waiter) //nolint:forcetypeassert // container/heap passes what Enqueue pushes
	w.index = len(*q)
	*q = append(*q, w)
}

func (q *queue) Pop() any {
	last := len(*q) - 1
	w := (*q)[last]
	(*q)[last] = nil
	*q = (*q)[:last]
	return w
}

// dispatch starts keys while there is room for them.
func (t *Throttle) dispatch(now time.Time) {
	for t.held < t.cfg.Slots && !t.stopped {
		w := t.next(now)
		if w == nil {
			return
		}
		s := t.place(w.tenant, now)
		s.claiming = true
		w.tenant.claiming++
		w.tenant.namespace.held++
		w.tenant.host.claiming++
		t.running.Go(func() {
			defer s.End()
			t.deps.Start(w, s)
		})
	}
}

// next takes the next key out of its queue: one of the namespace that holds fewest
// slots, whose hosts take turns.
func (t *Throttle) next(now time.Time) *Waiter {
	for {
		var fewest *namespaceState
		for n := range t.ready {
			if (fewest == nil || n.held < fewest.held) && !t.overShare(n, now) {
				fewest = n
			}
		}
		if fewest == nil {
			return nil
		}
		tenant := fewest.ready[0]
		fewest.ready = fewest.ready[1:]
		if tenant.ready = false; len(fewest.ready) == 0 {
			delete(t.ready, fewest)
		}
		for len(tenant.queue) > 0 && !tenant.queue[0].until.After(now) {
			t.drop(tenant.queue[0]) // another fetcher may have it
		}
		if len(tenant.queue) == 0 || !t.room(tenant, now) {
			continue
		}
		w := tenant.queue[0]
		t.drop(w)
		tenant.wake()
		return w
	}
}

// room reports whether the first key of a queue may be started.
func (t *Throttle) room(n *tenant, now time.Time) bool {
	h, held := n.host, n.held+n.claiming
	if later(h.pause.until, n.pausedUntil).After(now) && !(n.queue[0].Rank == Urgent && held == 0) {
		return false
	}
	limit := h.limit(n, t.cfg.PerHost)
	ahead := h.ahead(limit, now)
	return held < limit+ahead && h.held+h.claiming < t.cfg.PerHost+ahead
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
