package inbox

import (
	"sync"
	"time"
)

// slow is the duration of a result above which its namespace loses a quarter of the places. A
// webhook may be slow.
const slow = 5 * time.Second

// places counts the messages in flight by namespace.
type places struct {
	// messages and bytes are the maximum of a slow namespace.
	messages, bytes int

	mu sync.Mutex
	of map[string]*use
}

type use struct {
	messages, bytes int
	// took is the duration of its last result.
	took time.Duration
}

func newPlaces(messages, bytes int) *places {
	return &places{messages: messages - messages/4, bytes: bytes - bytes/4, of: map[string]*use{}}
}

// take takes a place for a message, if the namespace may have one more.
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

func (p *places) leave(namespace string, bytes int, took time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	u := p.of[namespace]
	u.messages, u.bytes, u.took = u.messages-1, u.bytes-bytes, took
	if u.messages == 0 {
		delete(p.of, namespace)
	}
}
