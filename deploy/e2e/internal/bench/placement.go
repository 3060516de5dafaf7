package bench

import (
	"errors"
	"os"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/bench/usage"
)

// Placement is which processors the programs run on.
type Placement string

const (
	// Shared: all programs run on all processors.
	Shared Placement = "shared"
	// Apart: the control plane has one processor, all others have another one.
	Apart Placement = "apart"
)

// placements that are compared; Apart only where that is possible.
func (b *bench) placements() []Placement {
	if !b.config.Apart {
		return []Placement{Shared}
	}
	var err error
	if b.processors, err = usage.Processors(); err != nil || len(b.processors) < 2 || len(b.control) < 2 {
		b.progress("apart is impossible here: it takes Linux, two processors, and the control plane that make bench starts")
		b.processors = nil
		return []Placement{Shared}
	}
	return []Placement{Shared, Apart}
}

// place moves all programs, those that are started later included.
func (b *bench) place(p Placement) (err error) {
	if b.processors == nil {
		return nil
	}
	control, others := b.processors, b.processors
	if p == Apart {
		control, others = control[:1], others[1:2]
	}
	for _, pid := range b.control {
		err = errors.Join(err, usage.Pin(pid, control...))
	}
	return errors.Join(err, usage.Pin(os.Getpid(), others...), b.system.Pin(others...))
}
