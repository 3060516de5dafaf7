package queue

import (
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
)

// Order is the order of a workqueue, which deduplicates names itself: live edits precede the initial backlog, and
// namespaces take turns.
type Order struct {
	mu sync.Mutex
	// marked names precede the backlog the next time they wait.
	marked map[types.NamespacedName]struct{}
	// waiting maps each name to its line.
	waiting         map[types.NamespacedName]*line
	urgent, backlog line
	// turn counts the calls of Pop.
	turn int
}

var _ workqueue.Queue[types.NamespacedName] = (*Order)(nil)

// NewOrder returns an empty order.
func NewOrder() *Order {
	return &Order{
		marked: map[types.NamespacedName]struct{}{}, waiting: map[types.NamespacedName]*line{},
		urgent: line{names: map[string][]string{}}, backlog: line{names: map[string][]string{}},
	}
}

// Urgent makes a name precede the backlog, if it waits, or else the next time it does.
func (o *Order) Urgent(name types.NamespacedName) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.marked[name] = struct{}{}
	if o.waiting[name] == &o.backlog {
		o.push(name, &o.urgent) // Pop skips it in the backlog
	}
}

// Touch does nothing: a waiting name keeps its place when it is added again.
func (o *Order) Touch(types.NamespacedName) {}

// Push adds a name that is not waiting.
func (o *Order) Push(name types.NamespacedName) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if _, marked := o.marked[name]; marked {
		o.push(name, &o.urgent)
		return
	}
	o.push(name, &o.backlog)
}

func (o *Order) push(name types.NamespacedName, l *line) {
	o.waiting[name] = l
	l.push(name)
}

// Forget drops the mark of a name.
func (o *Order) Forget(name types.NamespacedName) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.marked, name)
}

// Len returns the number of waiting names.
func (o *Order) Len() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.waiting)
}

// backlogTurn gives the backlog one turn in eight, so that the edits of one tenant do not starve it.
const backlogTurn = 8

// Pop returns the next name. The workqueue calls it only if there is one.
func (o *Order) Pop() types.NamespacedName {
	o.mu.Lock()
	defer o.mu.Unlock()
	lines := []*line{&o.urgent, &o.backlog}
	if o.turn++; o.turn%backlogTurn == 0 {
		slices.Reverse(lines)
	}
	for _, l := range lines {
		for len(l.turns) > 0 {
			if name := l.pop(); o.waiting[name] == l {
				delete(o.waiting, name)
				delete(o.marked, name)
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
