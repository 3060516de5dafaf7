package batch

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
	"k8s.io/utils/clock"
)

// ErrOptions tells that a queue cannot be made from its options.
var ErrOptions = errors.New("invalid options")

// Options of a Queue.
type Options struct {
	// Linger is how long the first piece of work for an object waits for more.
	Linger time.Duration
	// Concurrency is how many objects are worked on at a time.
	Concurrency int
	// Clock tells time.
	Clock clock.Clock
}

// Queue gathers work of type W by a key of type K. How much waits in it is
// bounded by its callers, who wait for the outcome.
type Queue[K comparable, W, O any] struct {
	options Options
	slots   *semaphore.Weighted
	work    func(context.Context, K, []W) []O

	mu    sync.Mutex
	lanes map[K]*lane[W, O]
	open  sync.WaitGroup
}

// lane is the work that waits for one key. It exists as long as a goroutine
// looks after it.
type lane[W, O any] struct {
	works []W
	done  []chan<- O
}

// New returns a queue that hands work to a function, which returns one outcome
// for each piece, in the same order.
func New[K comparable, W, O any](o Options, work func(context.Context, K, []W) []O) (*Queue[K, W, O], error) {
	if o.Linger < 0 {
		return nil, fmt.Errorf("%w: linger %v is negative", ErrOptions, o.Linger)
	}
	if o.Concurrency < 1 {
		return nil, fmt.Errorf("%w: concurrency %d is less than 1", ErrOptions, o.Concurrency)
	}
	if o.Clock == nil {
		return nil, fmt.Errorf("%w: no clock", ErrOptions)
	}
	return &Queue[K, W, O]{
		options: o,
		slots:   semaphore.NewWeighted(int64(o.Concurrency)),
		work:    work,
		lanes:   map[K]*lane[W, O]{},
	}, nil
}

// Add queues w and returns where its outcome will come. The context, without
// its cancellation, is that of the work: what was begun is finished.
func (q *Queue[K, W, O]) Add(ctx context.Context, key K, w W) <-chan O {
	done := make(chan O, 1)
	q.mu.Lock()
	defer q.mu.Unlock()
	l, exists := q.lanes[key]
	if !exists {
		l = &lane[W, O]{}
		q.lanes[key] = l
		ctx = context.WithoutCancel(ctx)
		q.open.Go(func() { q.drive(ctx, key, l) })
	}
	l.works = append(l.works, w)
	l.done = append(l.done, done)
	return done
}

// Wait returns when all work is done.
func (q *Queue[K, W, O]) Wait() { q.open.Wait() }

// drive works on one key until nothing waits for it. What arrives during the
// work has waited long enough and lingers no more.
func (q *Queue[K, W, O]) drive(ctx context.Context, key K, l *lane[W, O]) {
	if q.options.Linger > 0 {
		<-q.options.Clock.After(q.options.Linger)
	}
	for q.waiting(key, l) {
		_ = q.slots.Acquire(ctx, 1) // the context is never cancelled
		works, done := q.take(l)
		outcomes := q.work(ctx, key, works)
		q.slots.Release(1)
		for i, c := range done {
			c <- outcomes[i]
		}
	}
}

// waiting tells whether work waits in the lane, and closes it if not.
func (q *Queue[K, W, O]) waiting(key K, l *lane[W, O]) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(l.works) == 0 {
		delete(q.lanes, key)
		return false
	}
	return true
}

// take empties the lane.
func (q *Queue[K, W, O]) take(l *lane[W, O]) (works []W, done []chan<- O) {
	q.mu.Lock()
	defer q.mu.Unlock()
	works, done = l.works, l.done
	l.works, l.done = nil, nil
	return works, done
}
