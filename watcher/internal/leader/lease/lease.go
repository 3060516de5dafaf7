// Package lease elects a leader by a Lease. It is separate from package leader because client-go's election imports all
// clients and informers of Kubernetes, which takes a fifth of the build time of programs without elections.
package lease

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"

	"github.com/kv8s/curl-me-that/proto/kube"
	"github.com/kv8s/curl-me-that/watcher/internal/leader"
)

// elector leads while it holds the Lease.
type elector struct {
	config leader.Config
	deps   leader.Deps
	// identity is the name of this process in the Lease.
	identity string
	// leading is locked while Lead runs.
	leading sync.Mutex
}

// Elect takes part in one election after another until ctx is done, and leads while it holds the Lease.
func Elect(ctx context.Context, c leader.Config, d leader.Deps) error {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	e := &elector{config: c, deps: d, identity: host + "_" + string(uuid.NewUUID())}
	ctx, cancel := context.WithCancelCause(klog.NewContext(ctx, kube.DebugLogr(d.Log)))
	defer cancel(nil)
	for ctx.Err() == nil {
		d.Health.Ready()
		round, err := leaderelection.NewLeaderElector(e.election(cancel))
		if err != nil {
			return fmt.Errorf("set up leader election: %w", err)
		}
		round.Run(ctx)
		e.awaitEnd()
	}
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// awaitEnd waits until Lead has returned, because client-go does not. If Lead has not begun, its context
// is done by then.
func (e *elector) awaitEnd() {
	e.leading.Lock()
	defer e.leading.Unlock()
}

func (e *elector) election(fail context.CancelCauseFunc) leaderelection.LeaderElectionConfig {
	return leaderelection.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Namespace: e.config.Namespace, Name: e.config.Name},
			Client:     e.deps.Leases,
			LockConfig: resourcelock.ResourceLockConfig{Identity: e.identity},
		},
		LeaseDuration:   e.config.Lease,
		RenewDeadline:   e.config.Renew,
		RetryPeriod:     e.config.Retry,
		ReleaseOnCancel: true,
		Name:            e.config.Name,
		Callbacks:       e.callbacks(fail),
	}
}

// callbacks returns the callbacks of one term.
func (e *elector) callbacks(fail context.CancelCauseFunc) leaderelection.LeaderCallbacks {
	log := e.deps.Log.With().Str("lease", e.config.Namespace+"/"+e.config.Name).Logger()
	return leaderelection.LeaderCallbacks{
		OnStartedLeading: func(ctx context.Context) {
			e.leading.Lock()
			defer e.leading.Unlock()
			if ctx.Err() != nil {
				return
			}
			log.Info().Msg("leading")
			e.deps.Holding.Set(1)
			defer e.deps.Holding.Set(0)
			if err := e.deps.Lead(ctx); err != nil {
				fail(err)
			}
			log.Info().Msg("no longer leading")
		},
		OnStoppedLeading: func() {},
		OnNewLeader: func(identity string) {
			if identity != e.identity && identity != "" {
				log.Info().Str("leader", identity).Msg("standing by")
			}
		},
	}
}
