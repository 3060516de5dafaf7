// Package queue orders the watcher's work: what a person just did comes before
// the backlog of a start, and the backlog goes by namespace and name.
package queue

import (
	"container/heap"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
)

// Queue is the order in which a workqueue hands out names. The workqueue does
// the rest: each name waits once, and is worked on once at a time.
type Queue struct {
	mu      sync.Mutex
	urgent  map[types.NamespacedName]struct{}
	arrived uint64
	waiting items
	index   map[types.NamespacedName]*item
}

var _ workqueue.Queue[types.NamespacedName] = (*Queue)(nil)

// New returns an empty queue.
func New() *Queue {
	return &Queue{urgent: map[types.NamespacedName]struct{}{}, index: map[types.NamespacedName]*item{}}
}

// Urgent lets a name go before the backlog the next time that it waits.
func (q *Queue) Urgent(name types.NamespacedName) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.urgent[name] = struct{}{}
}

// Touch is called when a name that waits is added again.
func (q *Queue) Touch(name types.NamespacedName) {
	q.mu.Lock()
	defer q.mu.Unlock()
	it, waits := q.index[name]
	if _, urgent := q.urgent[name]; !waits || !urgent || it.urgent {
		return
	}
	q.arrived++
	it.urgent, it.arrived = true, q.arrived
	heap.Fix(&q.waiting, it.position)
}

// Push adds a name that does not wait yet.
func (q *Queue) Push(name types.NamespacedName) {
	q.mu.Lock()
	defer q.mu.Unlock()
	_, urgent := q.urgent[name]
	q.arrived++
	it := &item{name: name, urgent: urgent, arrived: q.arrived}
	q.index[name] = it
	heap.Push(&q.waiting, it)
}

// Len returns how many names wait.
func (q *Queue) Len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.waiting)
}

// Pop returns the next name. The workqueue calls it only when there is one.
func (q *Queue) Pop() types.NamespacedName {
	q.mu.Lock()
	defer q.mu.Unlock()
	it, ok := heap.Pop(&q.waiting).(*item)
	if !ok {
		return types.NamespacedName{}
	}
	delete(q.index, it.name)
	delete(q.urgent, it.name)
	return it.name
}

type item struct {
	name     types.NamespacedName
	urgent   bool
	arrived  uint64
	position int
}

// items is a heap: urgent ones first, in the order of arrival, then the others
// by namespace and name.
type items []*item

func (s items) Len() int { return len(s) }

func (s items) Less(i, j int) bool {
	a, b := s[i], s[j]
	if a.urgent != b.urgent {
		return a.urgent
	}
	if a.urgent {
		return a.arrived < b.arrived
	}
	if c := strings.Compare(a.name.Namespace, b.name.Namespace); c != 0 {
		return c < 0
	}
	return a.name.Name < b.name.Name
}

func (s items) Swap(i, j int) {
	s[i], s[j] = s[j], s[i]
	s[i].position, s[j].position = i, j
}

// Push is for package heap.
func (s *items) Push(x any) {
	if it, ok := x.(*item); ok {
		it.position = len(*s)
		*s = append(*s, it)
	}
}

// Pop is for package heap.
func (s *items) Pop() any {
	last := len(*s) - 1
	it := (*s)[last]
	(*s)[last] = nil
	*s = (*s)[:last]
	return it
}
