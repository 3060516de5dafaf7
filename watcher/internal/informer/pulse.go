package informer

import (
	"strconv"
	"sync/atomic"
	"time"
)

// Pulse is what is known of one watch: its last sign of life, and the latest
// resource version that it delivered. It is safe for concurrent use.
type Pulse struct {
	now     func() time.Time
	seen    atomic.Int64
	version atomic.Uint64
}

// NewPulse returns the pulse of a watch that has not begun.
func NewPulse(now func() time.Time) *Pulse { return &Pulse{now: now} }

// Beat notes a sign of life.
func (p *Pulse) Beat() { p.seen.Store(p.now().UnixNano()) }

// Silence returns how long ago the last sign of life was; 0 before the first.
func (p *Pulse) Silence() time.Duration {
	if p.seen.Load() == 0 {
		return 0
	}
	return p.now().Sub(p.last())
}

func (p *Pulse) last() time.Time { return time.Unix(0, p.seen.Load()) }

// Version returns the latest resource version that the watch delivered.
func (p *Pulse) Version() uint64 { return p.version.Load() }

// Note keeps the latest version that the watch has delivered.
func (p *Pulse) Note(version string) { p.version.Store(max(p.version.Load(), Number(version))) }

// Reset takes the version of a whole list.
func (p *Pulse) Reset(version string) { p.version.Store(Number(version)) }

// Number returns a resource version as a number, by which versions of one kind
// can be compared (KEP-5504); 0: it is none.
func Number(version string) uint64 {
	n, err := strconv.ParseUint(version, 10, 64)
	if err != nil {
		return 0
	}
	return n
}
