package batch

import "sync"

// slots are shared fairly: one that comes free goes to the share, such as a namespace,
// that holds fewest.
type slots struct {
	mu      sync.Mutex
	free    int
	held    map[string]int
	waiting map[string][]chan struct{}
}

func newSlots(n int) *slots {
	return &slots{free: n, held: map[string]int{}, waiting: map[string][]chan struct{}{}}
}

// acquire waits for a slot.
func (s *slots) acquire(share string) {
	s.mu.Lock()
	if s.free > 0 {
		s.free--
		s.held[share]++
		s.mu.Unlock()
		return
	}
	turn := make(chan struct{})
	s.waiting[share] = append(s.waiting[share], turn)
	s.mu.Unlock()
	<-turn
}

// release hands a slot on.
func (s *slots) release(share string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held[share]--; s.held[share] == 0 {
		delete(s.held, share)
	}
	next, found := "", false
	for other := range s.waiting {
		if !found || s.held[other] < s.held[next] {
			next, found = other, true
		}
	}
	if !found {
		s.free++
		return
	}
	turns := s.waiting[next]
	close(turns[0])
	s.held[next]++
	if s.waiting[next] = turns[1:]; len(turns) == 1 {
		delete(s.waiting, next)
	}
}
