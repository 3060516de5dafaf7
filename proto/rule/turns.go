package rule

import "sync"

// turns lets one caller at a time proceed, and namespaces one after the other.
type turns struct {
	mu      sync.Mutex
	busy    bool
	order   []string
	waiting map[string][]chan struct{}
}

// take waits for a turn.
func (t *turns) take(namespace string) {
	t.mu.Lock()
	if !t.busy {
		t.busy = true
		t.mu.Unlock()
		return
	}
	turn := make(chan struct{})
	if t.waiting == nil {
		t.waiting = map[string][]chan struct{}{}
	}
	if len(t.waiting[namespace]) == 0 {
		t.order = append(t.order, namespace)
	}
	t.waiting[namespace] = append(t.waiting[namespace], turn)
	t.mu.Unlock()
	<-turn
}

// pass ends a turn.
func (t *turns) pass() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.order) == 0 {
		t.busy = false
		return
	}
	next := t.order[0]
	queue := t.waiting[next]
	t.order = t.order[1:]
	if t.waiting[next] = queue[1:]; len(queue) > 1 {
		t.order = append(t.order, next)
	} else {
		delete(t.waiting, next)
	}
	close(queue[0])
}
