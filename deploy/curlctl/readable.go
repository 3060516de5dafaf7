package curlctl

import (
	"iter"

	"github.com/kv8s/curl-me-that/proto/pipeline"
)

// unread is what was left out.
type unread struct {
	messages int
	first    error
}

// readable leaves out the messages that cannot be read: what another client may
// have put on a subject must not hide all the others. The session reports at the
// end how many there were.
func readable[T any](s *session, all iter.Seq2[T, error]) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for item, err := range all {
			if err != nil && pipeline.Unreadable(err) {
				s.unread.add(err)
				continue
			}
			if !yield(item, err) || err != nil {
				return
			}
		}
	}
}

func (u *unread) add(err error) {
	if u.messages++; u.first == nil {
		u.first = err
	}
}

// hintUnread reports what was left out.
func (s *session) hintUnread() {
	if s.unread.messages > 0 {
		s.hint("Left out what cannot be read: %s, the first: %s.", plural(s.unread.messages, "message"), s.unread.first)
	}
}
