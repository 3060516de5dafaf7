package watcher

import (
	"context"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/kv8s/curl-me-that/proto/process"
)

// Intervals overrides intervals for specs; zero values keep the default.
type Intervals struct {
	Check, Audit, Stall, Export time.Duration
	// Ahead is the lead of the machine's clock over the broker's.
	Ahead time.Duration
}

// offClock is a machine's clock that is ahead.
type offClock struct {
	clock.RealClock
	ahead time.Duration
}

func (o offClock) Now() time.Time                  { return o.RealClock.Now().Add(o.ahead) }
func (o offClock) Since(t time.Time) time.Duration { return o.Now().Sub(t) }

// RunAt is Run with other intervals.
func RunAt(ctx context.Context, rt *process.Runtime, c Config, cluster *rest.Config, at Intervals) error {
	p := defaultIntervals()
	if at.Check > 0 {
		p.check = at.Check
	}
	if at.Stall > 0 {
		p.stall = at.Stall
	}
	if at.Export > 0 {
		p.export = at.Export
	}
	p.audit = at.Audit
	p.wall = offClock{ahead: at.Ahead}
	return run(ctx, rt, c, cluster, p)
}
