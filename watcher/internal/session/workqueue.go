package session

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"

	"github.com/kv8s/curl-me-that/watcher/internal/queue"
)

// Back-off of an object whose work failed.
const (
	retryFirst = 50 * time.Millisecond
	retryMax   = 15 * time.Second
)

// QueueName is the name of the queue in metrics.
const QueueName = "watcher"

// workQueue holds the objects that one session has to look at.
type workQueue struct {
	workqueue.TypedRateLimitingInterface[types.NamespacedName]

	order *queue.Queue
}

func newWorkQueue(metrics workqueue.MetricsProvider) *workQueue {
	order := queue.New()
	return &workQueue{
		order: order,
		TypedRateLimitingInterface: workqueue.NewTypedRateLimitingQueueWithConfig(
			workqueue.NewTypedItemExponentialFailureRateLimiter[types.NamespacedName](retryFirst, retryMax),
			workqueue.TypedRateLimitingQueueConfig[types.NamespacedName]{
				DelayingQueue: workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[types.NamespacedName]{
					Name: QueueName, MetricsProvider: metrics,
					Queue: workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[types.NamespacedName]{
						Name: QueueName, MetricsProvider: metrics, Queue: order,
					}),
				}),
			}),
	}
}
