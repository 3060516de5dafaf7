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

	order *Queue
}

// NewWork returns an empty queue with its name in metrics.
func NewWork(name string, metrics workqueue.MetricsProvider) *Work {
	order := New()
	return &Work{
		order: order,
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

// Urgent makes a name precede the backlog the next time it waits.
func (w *Work) Urgent(name types.NamespacedName) { w.order.Urgent(name) }

// Changed adds a name; a live change precedes the backlog.
func (w *Work) Changed(name types.NamespacedName, live bool) {
	if live {
		w.Urgent(name)
	}
	w.Add(name)
}
