package fault_test

import "sync"

// set is a set of strings, safe for concurrent use.
type set struct {
	mu    sync.Mutex
	items map[string]struct{}
}

func newSet() *set { return &set{items: map[string]struct{}{}} }

// add reports whether s is new.
func (t *set) add(s string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, known := t.items[s]
	t.items[s] = struct{}{}
	return !known
}
