package watcher

import (
	"context"
	"time"

	"k8s.io/client-go/rest"

	"github.com/kv8s/curl-me-that/proto/service"
)

// Pace is how often a watcher under test looks after what should not happen;
// zero values: as always.
type Pace struct{ Check, Audit, Stall, Export time.Duration }

// RunAt is Run at another pace.
func RunAt(ctx context.Context, rt *service.Runtime, c Config, cluster *rest.Config, at Pace) error {
	p := defaultPace()
	if at.Check > 0 {
		p.check = at.Check
	}
	if at.Stall > 0 {
		p.stall = at.Stall
	}
	p.audit, p.export = at.Audit, at.Export
	return run(ctx, rt, c, cluster, p)
}
