// Package pace says when work is done: live edits before the initial backlog, namespaces in turn, errors and repairs
// with pauses.
package pace

import (
	"context"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
)

// Queue is the order of a workqueue, which deduplicates names itself.
type Queue struct {
	mu sync.Mutex
	// marked names precede the backlog the next time they wait.
	marked map[types.NamespacedName]struct{}
	// waiting maps each name to its line.
	waiting         map[types.NamespacedName]*line
	urgent, backlog line
	// turn counts the calls of Pop.
	turn int
}

var _ workqueue.Queue[types.NamespacedName] = (*Queue)(nil)

// NewQueue returns an empty queue.
func NewQueue() *Queue {
	return &Queue{
		marked: map[types.NamespacedName]struct{}{}, waiting: map[types.NamespacedName]*line{},
		urgent: line{names: map[string][]string{}}, backlog: line{names: map[string][]string{}},
	}
}

// Urgent makes a name precede the backlog, if it waits, or else the next time it does.
func (q *Queue) Urgent(name types.NamespacedName) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.marked[name] = struct{}{}
	if q.waiting[name] == &q.backlog {
		q.push(name, &q.urgent) // Pop skips it in the backlog
	}
}

// Touch does nothing: a waiting name keeps its place when it is added again.
func (q *Queue) Touch(types.NamespacedName) {}

// Push adds a name that is not waiting.
func (q *Queue) Push(name types.NamespacedName) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if _, marked := q.marked[name]; marked {
		q.push(name, &q.urgent)
		return
	}
	q.push(name, &q.backlog)
}

func (q *Queue) push(name types.NamespacedName, l *line) {
	q.waiting[name] = l
	l.push(name)
}

// Forget drops the mark of a name.
func (q *Queue) Forget(name types.NamespacedName) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.marked, name)
}

// Len returns the number of waiting names.
func (q *Queue) Len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.waiting)
}

// backlogTurn gives the backlog one turn in eight, so that the edits of one tenant do not starve it.
const backlogTurn = 8

// Pop returns the next name. The workqueue calls it only if there is one.
func (q *Queue) Pop() types.NamespacedName {
	q.mu.Lock()
	defer q.mu.Unlock()
	lines := []*line{&q.urgent, &q.backlog}
	if q.turn++; q.turn%backlogTurn == 0 {
		slices.Reverse(lines)
	}
	for _, l := range lines {
		for len(l.turns) > 0 {
			if name := l.pop(); q.waiting[name] == l {
				delete(q.waiting, name)
				delete(q.marked, name)
				return name
			}
		}
	}
	return types.NamespacedName{}
}

// line is first in, first out within a namespace. Namespaces take turns.
type line struct {
	names map[string][]string
	// turns are the namespaces with waiting names, the next one first.
	turns []string
}

func (l *line) push(name types.NamespacedName) {
	waiting := l.names[name.Namespace]
	if len(waiting) == 0 {
		l.turns = append(l.turns, name.Namespace)
	}
	l.names[name.Namespace] = append(waiting, name.Name)
}

func (l *line) pop() types.NamespacedName {
	namespace := l.turns[0]
	waiting := l.names[namespace]
	l.turns = l.turns[1:]
	if len(waiting) == 1 {
		delete(l.names, namespace)
	} else {
		l.names[namespace] = waiting[1:]
		l.turns = append(l.turns, namespace)
	}
	return types.NamespacedName{Namespace: namespace, Name: waiting[0]}
}

// Back-off of an object after an error.
const (
	retryFirst = 50 * time.Millisecond
	retryMax   = 15 * time.Second
)

// Work is a work queue in the order of a Queue.
type Work struct {
	workqueue.TypedRateLimitingInterface[types.NamespacedName]

	// order is the order of the queue. Names in deferred wait for Release.
	order, deferred *Queue
}

// NewWork returns an empty queue with its name in metrics.
func NewWork(name string, metrics workqueue.MetricsProvider) *Work {
	order := NewQueue()
	return &Work{
		order: order, deferred: NewQueue(),
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
func (w *Work) Run(ctx context.Context, workers int, handle func(types.NamespacedName)) {
	defer context.AfterFunc(ctx, w.ShutDown)()
	var group sync.WaitGroup
	for range workers {
		group.Go(func() {
			for {
				name, shutdown := w.Get()
				if shutdown || w.ShuttingDown() {
					return
				}
				handle(name)
				w.Done(name)
			}
		})
	}
	group.Wait()
}

// Urgent makes a name precede the backlog, now or the next time it waits or is deferred.
func (w *Work) Urgent(name types.NamespacedName) {
	w.order.Urgent(name)
	w.deferred.Urgent(name)
}

// Changed adds a name. A live change precedes the backlog.
func (w *Work) Changed(name types.NamespacedName, live bool) {
	if live {
		w.Urgent(name)
	}
	w.Add(name)
}

// Defer keeps a name until Release.
func (w *Work) Defer(name types.NamespacedName) { w.deferred.Push(name) }

// Release adds up to n deferred names, ahead of the backlog. It reports whether names are left.
func (w *Work) Release(n int) (left bool) {
	for range min(n, w.deferred.Len()) {
		name := w.deferred.Pop()
		w.order.Urgent(name)
		w.Add(name)
	}
	return w.deferred.Len() > 0
}

// Forget resets the back-off of a name, and its priority among deferred names.
func (w *Work) Forget(name types.NamespacedName) {
	w.deferred.Forget(name)
	w.TypedRateLimitingInterface.Forget(name)
}
