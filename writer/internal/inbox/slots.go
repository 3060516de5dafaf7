package inbox

import (
	"sync"
	"time"
)

// slow is how long a result may take before its namespace loses a quarter of the slots. An admission
// webhook may be slow.
const slow = 5 * time.Second

// slots limits the messages in flight of slow namespaces.
type slots struct {
	// messages and bytes are the limits of one slow namespace.
	messages, bytes int

	mu    sync.Mutex
	usage map[string]*usage // by namespace
}

// usage is what one namespace has in flight.
type usage struct {
	messages, bytes int
	// took is the duration of its last result.
	took time.Duration
}

func newSlots(messages, bytes int) *slots {
	return &slots{messages: messages - messages/4, bytes: bytes - bytes/4, usage: map[string]*usage{}}
}

// acquire takes a slot for a message, if the namespace may have one more.
func (s *slots) acquire(namespace string, bytes int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	u := s.usage[namespace]
	if u == nil {
		u = &usage{}
		s.usage[namespace] = u
	}
	if u.took > slow && (u.messages >= s.messages || u.bytes >= s.bytes) {
		return false
	}
	u.messages, u.bytes = u.messages+1, u.bytes+bytes
	return true
}

func (s *slots) release(namespace string, bytes int, took time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	u := s.usage[namespace]
	u.messages, u.bytes, u.took = u.messages-1, u.bytes-bytes, took
	if u.messages == 0 {
		delete(s.usage, namespace)
	}
}
