// Package queue has the work queue of reconcilers. It says which object is next, and when an object comes back after an
// error, after a repair, or by itself.
package queue

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
)

// Back-off of an object after an error.
const (
	retryFirst = 50 * time.Millisecond
	retryMax   = 15 * time.Second
)

// Queue is a work queue in the order of an Order.
type Queue struct {
	workqueue.TypedRateLimitingInterface[types.NamespacedName]

	// order is the order of the queue. Names in deferred wait for Release.
	order, deferred *Order
}

// New returns an empty queue with its name in metrics.
func New(name string, metrics workqueue.MetricsProvider) *Queue {
	order := NewOrder()
	return &Queue{
		order: order, deferred: NewOrder(),
		TypedRateLimitingInterface: workqueue.NewTypedRateLimitingQueueWithConfig(
			workqueue.NewTypedItemExponentialFailureRateLimiter[types.NamespacedName](retryFirst, retryMax),
			workqueue.TypedRateLimitingQueueConfig[types.NamespacedName]{
				DelayingQueue: workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[types.NamespacedName]{
					Name: name, MetricsProvider: metrics,
					Queue: workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[types.NamespacedName]{
						Name: name, MetricsProvider: metrics, Queue: order,
					}),
				}),
			}),
	}
}

// Run handles names concurrently until ctx is done, and finishes work in progress.
func (q *Queue) Run(ctx context.Context, workers int, handle func(types.NamespacedName)) {
	defer context.AfterFunc(ctx, q.ShutDown)()
	var group sync.WaitGroup
	for range workers {
		group.Go(func() {
			for {
				name, shutdown := q.Get()
				if shutdown || q.ShuttingDown() {
					return
				}
				handle(name)
				q.Done(name)
			}
		})
	}
	group.Wait()
}

// Urgent makes a name precede the backlog, now or the next time it waits or is deferred.
func (q *Queue) Urgent(name types.NamespacedName) {
	q.order.Urgent(name)
	q.deferred.Urgent(name)
}

// Changed adds a name. A live change precedes the backlog.
func (q *Queue) Changed(name types.NamespacedName, live bool) {
	if live {
		q.Urgent(name)
	}
	q.Add(name)
}

// Defer keeps a name until Release.
func (q *Queue) Defer(name types.NamespacedName) { q.deferred.Push(name) }

// Release adds up to n deferred names, ahead of the backlog. It reports whether names are left.
func (q *Queue) Release(n int) (left bool) {
	for range min(n, q.deferred.Len()) {
		name := q.deferred.Pop()
		q.order.Urgent(name)
		q.Add(name)
	}
	return q.deferred.Len() > 0
}

// Forget resets the back-off of a name, and its priority among deferred names.
func (q *Queue) Forget(name types.NamespacedName) {
	q.deferred.Forget(name)
	q.TypedRateLimitingInterface.Forget(name)
}

// Soonest returns the shorter of two waits (0: none).
func Soonest(a, b time.Duration) time.Duration {
	if a == 0 || b > 0 && b < a {
		return b
	}
	return a
}
