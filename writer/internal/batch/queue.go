package batch

import (
	"context"
	"sync"
	"time"
)

// Config configures a Queue.
type Config[K comparable, W, O any] struct {
	// Linger is how long the first piece of work for a key waits for more.
	Linger time.Duration
	// Concurrency is the maximum number of keys that are worked on at a time.
	Concurrency int
	// Share returns the share of a key, such as its namespace. A free slot goes to the waiting share that
	// holds the fewest slots. One share holds at most three quarters, so that work that hangs delays no other share.
	Share func(K) string
	// Work returns one outcome for each piece of work, in the same order.
	Work func(context.Context, K, []W) []O
}

// Queue groups work of type W by a key of type K. Its length is bounded because callers wait for the outcome.
type Queue[K comparable, W, O any] struct {
	config Config[K, W, O]
	open   sync.WaitGroup

	mu      sync.Mutex
	groups  map[K]*group[W, O]
	free    int
	most    int // that one share may hold, because its work may hang
	held    map[string]int
	waiting map[string][]chan struct{}
}

// group is the pending work for one key. It exists as long as a goroutine works on it.
type group[W, O any] struct {
	works []W
	done  []chan<- O
}

// New returns an empty queue.
func New[K comparable, W, O any](c Config[K, W, O]) *Queue[K, W, O] {
	return &Queue[K, W, O]{
		config: c, groups: map[K]*group[W, O]{},
		free: c.Concurrency, most: c.Concurrency - c.Concurrency/4, held: map[string]int{},
		waiting: map[string][]chan struct{}{},
	}
}

// Add queues w and returns a channel for its outcome. The work gets the context without its
// cancellation, because started work is finished.
func (q *Queue[K, W, O]) Add(ctx context.Context, key K, w W) <-chan O {
	done := make(chan O, 1)
	q.mu.Lock()
	defer q.mu.Unlock()
	g, exists := q.groups[key]
	if !exists {
		g = &group[W, O]{}
		q.groups[key] = g
		ctx = context.WithoutCancel(ctx)
		q.open.Go(func() { q.drive(ctx, key, g) })
	}
	g.works = append(g.works, w)
	g.done = append(g.done, done)
	return done
}

// Wait returns when all work is done.
func (q *Queue[K, W, O]) Wait() { q.open.Wait() }

// drive works on one key until no work is pending. Work that arrives meanwhile does not linger.
func (q *Queue[K, W, O]) drive(ctx context.Context, key K, g *group[W, O]) {
	if q.config.Linger > 0 {
		<-time.After(q.config.Linger)
	}
	share := q.config.Share(key)
	for q.pending(key, g) {
		q.acquire(share)
		works, done := q.take(g)
		outcomes := q.config.Work(ctx, key, works)
		q.release(share)
		for i, d := range done {
			d <- outcomes[i]
		}
	}
}

// pending reports whether work is pending in the group, and removes the group if not.
func (q *Queue[K, W, O]) pending(key K, g *group[W, O]) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(g.works) == 0 {
		delete(q.groups, key)
		return false
	}
	return true
}

// take empties the group.
func (q *Queue[K, W, O]) take(g *group[W, O]) (works []W, done []chan<- O) {
	q.mu.Lock()
	defer q.mu.Unlock()
	works, done = g.works, g.done
	g.works, g.done = nil, nil
	return works, done
}

// acquire waits for a slot.
func (q *Queue[K, W, O]) acquire(share string) {
	turn := make(chan struct{})
	q.mu.Lock()
	q.waiting[share] = append(q.waiting[share], turn)
	q.grant()
	q.mu.Unlock()
	<-turn
}

// release frees a slot.
func (q *Queue[K, W, O]) release(share string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.free++
	if q.held[share]--; q.held[share] == 0 {
		delete(q.held, share)
	}
	q.grant()
}

// grant gives a free slot to the waiting share that holds the fewest. The caller holds the lock.
func (q *Queue[K, W, O]) grant() {
	if q.free == 0 || len(q.waiting) == 0 {
		return
	}
	next, found := "", false
	for share := range q.waiting {
		if q.held[share] < q.most && (!found || q.held[share] < q.held[next]) {
			next, found = share, true
		}
	}
	if !found {
		return
	}
	turns := q.waiting[next]
	close(turns[0])
	q.free--
	q.held[next]++
	if q.waiting[next] = turns[1:]; len(turns) == 1 {
		delete(q.waiting, next)
	}
}
