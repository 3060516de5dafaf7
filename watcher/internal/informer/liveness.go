package informer

import (
	"sync/atomic"
	"time"
)

// liveness is what is known of one watch: its last sign of life, and the latest
// resource version that it delivered. It is safe for concurrent use.
type liveness struct {
	now    func() time.Time
	seen   atomic.Int64
	latest atomic.Uint64
}

// beat notes a sign of life.
func (p *liveness) beat() { p.seen.Store(p.now().UnixNano()) }

// silence returns how long ago the last sign of life was; 0 before the first.
func (p *liveness) silence() time.Duration {
	if p.seen.Load() == 0 {
		return 0
	}
	return p.now().Sub(p.last())
}

func (p *liveness) last() time.Time { return time.Unix(0, p.seen.Load()) }

// version returns the latest resource version that the watch delivered.
func (p *liveness) version() uint64 { return p.latest.Load() }

// note keeps the latest version that the watch has delivered.
func (p *liveness) note(version uint64) { p.latest.Store(max(p.latest.Load(), version)) }

// reset takes the version of a whole list.
func (p *liveness) reset(version uint64) { p.latest.Store(version) }
