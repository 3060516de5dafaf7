// Package readable skips and counts unreadable messages of the streams.
package readable

import (
	"iter"
	"sync"

	"github.com/kv8s/curl-me-that/proto/pipeline"
)

// Unread counts skipped messages. The zero value is ready. It is safe for concurrent use.
type Unread struct {
	mu       sync.Mutex
	messages int
	first    error
}

// Only skips unreadable messages: a message of another client must not hide all others.
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

// Count returns the number of skipped messages, and the error of the first one.
func (u *Unread) Count() (messages int, first error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.messages, u.first
}
