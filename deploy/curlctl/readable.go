package curlctl

import (
	"iter"

	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/readable"
)

// readableOf leaves out the messages that cannot be read. The session reports at
// the end how many there were.
func readableOf[T any](s *session, all iter.Seq2[T, error]) iter.Seq2[T, error] {
	return readable.Only(&s.unread, all)
}

// hintUnread reports what was left out.
func (s *session) hintUnread() {
	if n, first := s.unread.Count(); n > 0 {
		s.hint("Left out what cannot be read: %s, the first: %s.", plural(n, "message"), first)
	}
}
