package inbox

import (
	"sync"
	"time"
)

// slow is how long a result takes in a namespace that may not have all places: a webhook
// may hold up its writes.
const slow = 5 * time.Second

// places are the messages in work by namespace.
type places struct {
	// messages and bytes are the maximum of a namespace whose results are slow.
	messages, bytes int

	mu sync.Mutex
	of map[string]*use
}

// use is that of one namespace.
type use struct {
	messages, bytes int
	// took is how long its last result took.
	took time.Duration
}

// newPlaces shares places for messages and bytes: a namespace whose results are slow
// has three quarters.
func newPlaces(messages, bytes int) *places {
	return &places{messages: messages - messages/4, bytes: bytes - bytes/4, of: map[string]*use{}}
}

// take reports whether a namespace may have one more message in work, and takes it.
func (p *places) take(namespace string, bytes int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	u := p.of[namespace]
	if u == nil {
		u = &use{}
		p.of[namespace] = u
	}
	if u.took > slow && (u.messages >= p.messages || u.bytes >= p.bytes) {
		return false
	}
	u.messages, u.bytes = u.messages+1, u.bytes+bytes
	return true
}

// leave gives a place back after some time.
func (p *places) leave(namespace string, bytes int, took time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	u := p.of[namespace]
	u.messages, u.bytes, u.took = u.messages-1, u.bytes-bytes, took
	if u.messages == 0 {
		delete(p.of, namespace)
	}
}
