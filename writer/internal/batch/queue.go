package batch

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// Config of a Queue.
type Config struct {
	// Linger is how long the first piece of work for an object waits for more.
	Linger time.Duration
	// Concurrency is how many objects are worked on at a time.
	Concurrency int
}

// Queue gathers work of type W by a key of type K. How much waits in it is
// bounded by its callers, who wait for the outcome.
type Queue[K comparable, W, O any] struct {
	config Config
	clock  clock.Clock
	slots  *slots
	share  func(K) string
	work   func(context.Context, K, []W) []O

	mu     sync.Mutex
	groups map[K]*group[W, O]
	open   sync.WaitGroup
}

// group is the work that waits for one key. It exists as long as a goroutine
// works on it.
type group[W, O any] struct {
	works []W
	done  []chan<- O
}

// Deps is what a Queue works with.
type Deps[K comparable, W, O any] struct {
	Clock clock.Clock
	// Share names those among whom the concurrency is shared, such as namespaces.
	Share func(K) string
	// Work returns one outcome for each piece of work, in the same order.
	Work func(context.Context, K, []W) []O
}

// New returns an empty queue.
func New[K comparable, W, O any](c Config, d Deps[K, W, O]) (*Queue[K, W, O], error) {
	if c.Linger < 0 {
		return nil, fmt.Errorf("make queue: linger %v is negative", c.Linger)
	}
	if c.Concurrency < 1 {
		return nil, fmt.Errorf("make queue: concurrency %d is less than 1", c.Concurrency)
	}
	if d.Clock == nil || d.Share == nil {
		return nil, errors.New("make queue: no clock, or no shares")
	}
	return &Queue[K, W, O]{
		config: c,
		clock:  d.Clock,
		slots:  newSlots(c.Concurrency),
		share:  d.Share,
		work:   d.Work,
		groups: map[K]*group[W, O]{},
	}, nil
}

// Add queues w and returns where its outcome will come. The context, without
// its cancellation, is that of the work: what was begun is finished.
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

// drive works on one key until nothing waits for it. What arrives during the
// work has waited long enough and lingers no more.
func (q *Queue[K, W, O]) drive(ctx context.Context, key K, g *group[W, O]) {
	if q.config.Linger > 0 {
		<-q.clock.After(q.config.Linger)
	}
	for q.waiting(key, g) {
		q.slots.acquire(q.share(key))
		works, done := q.take(g)
		outcomes := q.work(ctx, key, works)
		q.slots.release(q.share(key))
		for i, d := range done {
			d <- outcomes[i]
		}
	}
}

// waiting reports whether work waits in the group, and removes it if not.
func (q *Queue[K, W, O]) waiting(key K, g *group[W, O]) bool {
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
