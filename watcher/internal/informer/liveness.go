package informer

import (
	"sync/atomic"
	"time"
)

// liveness tracks the last response and version of one watch. It is safe for concurrent use.
type liveness struct {
	now    func() time.Time
	seen   atomic.Int64
	latest atomic.Uint64
}

func (p *liveness) beat() { p.seen.Store(p.now().UnixNano()) }

// silence returns the time since the last response; 0 before the first.
func (p *liveness) silence() time.Duration {
	if p.seen.Load() == 0 {
		return 0
	}
	return p.now().Sub(p.last())
}

func (p *liveness) last() time.Time { return time.Unix(0, p.seen.Load()) }

func (p *liveness) version() uint64 { return p.latest.Load() }

func (p *liveness) note(version uint64) { p.latest.Store(max(p.latest.Load(), version)) }

// reset sets the version of a list, which may be lower.
func (p *liveness) reset(version uint64) { p.latest.Store(version) }
