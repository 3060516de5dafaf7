// Package readable leaves out of what is read from the streams the messages that
// cannot be read, and counts them.
package readable

import (
	"iter"
	"sync"

	"github.com/kv8s/curl-me-that/proto/pipeline"
)

// Unread counts what was left out. Its zero value is ready; it is safe for
// concurrent use.
type Unread struct {
	mu       sync.Mutex
	messages int
	first    error
}

// Only leaves out the messages that cannot be read: what another client may have
// put on a subject must not hide all the others.
func Only[T any](u *Unread, all iter.Seq2[T, error]) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for item, err := range all {
			if err != nil && pipeline.Unreadable(err) {
				u.add(err)
				continue
			}
			if !yield(item, err) || err != nil {
				return
			}
		}
	}
}

func (u *Unread) add(err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.messages++; u.first == nil {
		u.first = err
	}
}

// Count returns how many messages were left out, and why the first was.
func (u *Unread) Count() (messages int, first error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.messages, u.first
}
