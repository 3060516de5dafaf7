package queue

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
)

// Back-off of an object after an error.
const (
	retryFirst = 50 * time.Millisecond
	retryMax   = 15 * time.Second
)

// Work is the work queue of a session, in the order of a Queue.
type Work struct {
	workqueue.TypedRateLimitingInterface[types.NamespacedName]

	// order is that of the queue, and held has names that do not wait in it until Release.
	order, held *Queue
}

// NewWork returns an empty queue with its name in metrics.
func NewWork(name string, metrics workqueue.MetricsProvider) *Work {
	order := New()
	return &Work{
		order: order, held: New(),
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

// Urgent makes a name precede the backlog the next time it waits, or is held.
func (w *Work) Urgent(name types.NamespacedName) {
	for _, q := range []*Queue{w.order, w.held} {
		q.Urgent(name)
		q.Touch(name)
	}
}

// Changed adds a name; a live change precedes the backlog.
func (w *Work) Changed(name types.NamespacedName, live bool) {
	if live {
		w.Urgent(name)
	}
	w.Add(name)
}

// Hold keeps a name until Release.
func (w *Work) Hold(name types.NamespacedName) { w.held.Push(name) }

// Release adds up to n held names, before the names that have not been tried yet. It reports
// whether names are left.
func (w *Work) Release(n int) (left bool) {
	for range min(n, w.held.Len()) {
		name := w.held.Pop()
		w.order.Urgent(name)
		w.Add(name)
	}
	return w.held.Len() > 0
}

// Forget drops what is known about earlier tries of a name.
func (w *Work) Forget(name types.NamespacedName) {
	w.held.Forget(name)
	w.TypedRateLimitingInterface.Forget(name)
}
