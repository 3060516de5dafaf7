package apply

import (
	"context"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kv8s/curl-me-that/writer/internal/plan"
)

// slowAfter is how long a result may take before its namespace loses a quarter of the space in flight. An admission
// webhook may be slow.
const slowAfter = 5 * time.Second

// linger is how long the first result for a ConfigMap waits for others to share its patch.
const linger = 2 * time.Millisecond

// MaxMessages and MaxBytes limit the results in flight, so that their bodies fit into the memory of a small pod. A
// slow namespace gets at most three quarters of them, and any at most three quarters of the concurrency.
const (
	MaxMessages = 256
	MaxBytes    = 64 << 20
)

// maxBatch is the maximum size of the messages of a batch in bytes, unless it is one message. No ConfigMap holds
// more (1 MiB), but the bodies of a batch are in memory several times, and the API server would refuse them together.
const maxBatch = 1 << 20

// queue groups results by object, so that one goroutine at a time works on an object. A free slot goes to the
// namespace with the fewest. Its length is bounded because callers wait for the end of their work.
type queue struct {
	concurrency int
	work        func(context.Context, types.NamespacedName, []plan.Item) []Applied

	mu     sync.Mutex
	groups map[types.NamespacedName]*group
	free   int               // of concurrency
	shares map[string]*share // by namespace
}

// group holds the pending results of one object. It exists while a goroutine works on that object.
type group []pending

// pending is a result that waits for its batch.
type pending struct {
	item  plan.Item
	bytes int
	done  chan<- end
}

// take removes the next batch from a group, with the oldest triggers. Copies let go of its bodies, even if others
// arrive all the time.
func (g *group) take() (batch group) {
	slices.SortStableFunc(*g, func(a, b pending) int { return a.item.Fence.Compare(b.item.Fence) })
	n, bytes := 0, 0
	for n < len(*g) && (n == 0 || bytes+(*g)[n].bytes <= maxBatch) {
		bytes += (*g)[n].bytes
		n++
	}
	batch, *g = slices.Clone((*g)[:n]), slices.Delete(*g, 0, n)
	return batch
}

func (g group) items() []plan.Item {
	items := make([]plan.Item, len(g))
	for i, p := range g {
		items[i] = p.item
	}
	return items
}

// share is the part of the queue that one namespace uses.
type share struct {
	messages, bytes int
	// took is how long its last result took.
	took time.Duration
	// busy counts the objects that are being written, and turns has a channel for each waiting object.
	busy  int
	turns []chan struct{}
}

// newQueue returns an empty queue. The work returns what became of each item, in the same order.
func newQueue(
	concurrency int, work func(context.Context, types.NamespacedName, []plan.Item) []Applied,
) *queue {
	return &queue{
		concurrency: concurrency, work: work, free: concurrency,
		groups: map[types.NamespacedName]*group{}, shares: map[string]*share{},
	}
}

// namespaceShare is the part of a limit that one namespace gets.
func namespaceShare(limit int) int { return max(1, limit-(limit+3)/4) }

// Do works on an item of so many bytes and returns what became of it. It does nothing if the slow namespace has used
// its space. Work that has begun is finished, even if ctx is done. Do panics if the work panics.
func (q *queue) Do(ctx context.Context, item plan.Item, bytes int) (applied Applied, fits bool) {
	began, namespace := time.Now(), item.Key.Namespace
	q.mu.Lock()
	s := q.shares[namespace]
	if s == nil {
		s = &share{}
		q.shares[namespace] = s
	}
	if s.took > slowAfter && (s.messages >= namespaceShare(MaxMessages) || s.bytes >= namespaceShare(MaxBytes)) {
		q.mu.Unlock()
		return Applied{}, false
	}
	s.messages, s.bytes = s.messages+1, s.bytes+bytes
	ref := types.NamespacedName{Namespace: namespace, Name: item.Key.Name}
	g, exists := q.groups[ref]
	if !exists {
		g = &group{}
		q.groups[ref] = g
	}
	done := make(chan end, 1)
	*g = append(*g, pending{item, bytes, done})
	q.mu.Unlock()
	if !exists {
		q.drive(context.WithoutCancel(ctx), ref, s, g)
	}
	end := <-done
	q.mu.Lock()
	defer q.mu.Unlock()
	s.messages, s.bytes, s.took = s.messages-1, s.bytes-bytes, time.Since(began)
	if s.messages == 0 {
		delete(q.shares, namespace)
	}
	if end.panicked != "" {
		panic(end.panicked)
	}
	return end.Applied, true
}

// end is the end of the work on an item.
type end struct {
	Applied
	// panicked has the value and the stack of a panic.
	panicked string
}

// call works on items. A panic goes to the handlers of their messages, where pipeline.Consume recovers it. In the
// goroutine of the work, it would end the process, and the redelivered message every other writer.
func (q *queue) call(ctx context.Context, ref types.NamespacedName, items []plan.Item) (ends []end) {
	ends = make([]end, len(items))
	defer func() {
		if value := recover(); value != nil {
			for i := range ends {
				ends[i].panicked = fmt.Sprintf("%v\n%s", value, debug.Stack())
			}
		}
	}()
	for i, applied := range q.work(ctx, ref, items) {
		ends[i].Applied = applied
	}
	return ends
}

// drive works on the results of one object that arrive within linger. Others do not linger, and the caller does not
// wait for them. With a new goroutine for each object, growing stacks took a twentieth of the writer's time.
func (q *queue) drive(ctx context.Context, ref types.NamespacedName, s *share, g *group) {
	<-time.After(linger)
	if over := q.next(ctx, ref, s, g); !over {
		go func() {
			for !over {
				over = q.next(ctx, ref, s, g)
			}
		}()
	}
}

// next works on the next batch of an object, and reports whether no result is pending.
func (q *queue) next(ctx context.Context, ref types.NamespacedName, s *share, g *group) (over bool) {
	turn := make(chan struct{})
	q.mu.Lock()
	s.turns = append(s.turns, turn)
	q.grant()
	q.mu.Unlock()
	<-turn
	q.mu.Lock()
	batch := g.take()
	q.mu.Unlock()
	ends := q.call(ctx, ref, batch.items())
	q.mu.Lock()
	q.free, s.busy = q.free+1, s.busy-1
	q.grant()
	over = len(*g) == 0
	if over {
		delete(q.groups, ref)
	}
	q.mu.Unlock()
	for i, p := range batch {
		p.done <- ends[i]
	}
	return over
}

// grant gives a free slot to the waiting namespace with the fewest. The caller has the lock.
func (q *queue) grant() {
	if q.free == 0 {
		return
	}
	var next *share
	for _, s := range q.shares {
		if len(s.turns) > 0 && s.busy < namespaceShare(q.concurrency) && (next == nil || s.busy < next.busy) {
			next = s
		}
	}
	if next == nil {
		return
	}
	close(next.turns[0])
	next.turns = next.turns[1:]
	q.free, next.busy = q.free-1, next.busy+1
}
