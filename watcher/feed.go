package watcher

import (
	"sync/atomic"
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

// queueName tells the queue in metrics.
const queueName = "watcher"

// work is the queue of one session of publishing.
type work struct {
	workqueue.TypedRateLimitingInterface[types.NamespacedName]
	order *queue.Queue
}

func newWork(metrics workqueue.MetricsProvider) *work {
	order := queue.New()
	return &work{
		order: order,
		TypedRateLimitingInterface: workqueue.NewTypedRateLimitingQueueWithConfig(
			workqueue.NewTypedItemExponentialFailureRateLimiter[types.NamespacedName](retryFirst, retryMax),
			workqueue.TypedRateLimitingQueueConfig[types.NamespacedName]{
				DelayingQueue: workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[types.NamespacedName]{
					Name: queueName, MetricsProvider: metrics,
					Queue: workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[types.NamespacedName]{
						Name: queueName, MetricsProvider: metrics, Queue: order,
					}),
				}),
			}),
	}
}

// feed passes changes of objects to the session that publishes, if there is
// one. A session looks at all objects when it begins.
type feed struct{ session atomic.Pointer[work] }

func (f *feed) changed(name types.NamespacedName, live bool) {
	w := f.session.Load()
	if w == nil {
		return
	}
	if live {
		w.order.Urgent(name)
	}
	w.Add(name)
}
