package leader

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	coordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"

	"github.com/kv8s/curl-me-that/proto/service"
	"github.com/kv8s/curl-me-that/proto/service/kube"
)

// Deps are what an Elector works with.
type Deps struct {
	// Leases is where the Lease is kept.
	Leases coordinationv1.LeasesGetter
	// Lead is what the leader does until ctx is done. An error of it ends the
	// watcher.
	Lead func(ctx context.Context) error
	// Health is ready while another watcher leads: the cache is warm.
	Health *service.Part
	// Holding is 1 while this watcher holds the Lease.
	Holding prometheus.Gauge
	Log     zerolog.Logger
}

// Elector leads whenever it holds the Lease.
type Elector struct {
	config Config
	deps   Deps
}

// New returns an elector that does not run.
func New(c Config, d Deps) *Elector {
	if c.Identity == "" {
		host, err := os.Hostname()
		if err != nil {
			host = "unknown"
		}
		c.Identity = host + "_" + string(uuid.NewUUID())
	}
	return &Elector{config: c, deps: d}
}

// Run takes part in the election until ctx is done. Without an election it
// leads.
func (e *Elector) Run(ctx context.Context) error {
	if !e.config.Enabled {
		return e.deps.Lead(ctx)
	}
	log := logr.Discard()
	if e.deps.Log.GetLevel() <= zerolog.DebugLevel {
		log = kube.Logr(e.deps.Log) // it logs every try
	}
	ctx, cancel := context.WithCancelCause(klog.NewContext(ctx, log))
	defer cancel(nil)
	for ctx.Err() == nil {
		e.deps.Health.Ready()
		term := &term{}
		elector, err := leaderelection.NewLeaderElector(e.election(term, cancel))
		if err != nil {
			return fmt.Errorf("set up leader election: %w", err)
		}
		elector.Run(ctx)
		term.end()
	}
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

func (e *Elector) election(term *term, fail context.CancelCauseFunc) leaderelection.LeaderElectionConfig {
	return leaderelection.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Namespace: e.config.Namespace, Name: e.config.Name},
			Client:     e.deps.Leases,
			LockConfig: resourcelock.ResourceLockConfig{Identity: e.config.Identity},
		},
		LeaseDuration:   e.config.Lease,
		RenewDeadline:   e.config.Renew,
		RetryPeriod:     e.config.Retry,
		ReleaseOnCancel: true,
		Name:            e.config.Name,
		Callbacks:       e.callbacks(term, fail),
	}
}

// callbacks of one term.
func (e *Elector) callbacks(term *term, fail context.CancelCauseFunc) leaderelection.LeaderCallbacks {
	log := e.deps.Log.With().Str("lease", e.config.Namespace+"/"+e.config.Name).Logger()
	return leaderelection.LeaderCallbacks{
		OnStartedLeading: func(ctx context.Context) {
			if !term.begin() {
				return
			}
			defer term.running.Done()
			log.Info().Msg("leading")
			e.deps.Holding.Set(1)
			defer e.deps.Holding.Set(0)
			if err := e.deps.Lead(ctx); err != nil {
				fail(err)
			}
			log.Info().Msg("no longer leading")
		},
		OnStoppedLeading: func() {},
		OnNewLeader: func(leader string) {
			if leader != e.config.Identity && leader != "" {
				log.Info().Str("leader", leader).Msg("standing by")
			}
		},
	}
}

// term is one time of leading. The elector starts it in a goroutine of its own
// and does not wait for it; the next term must not begin before it is over.
type term struct {
	mu      sync.Mutex
	over    bool
	running sync.WaitGroup
}

func (t *term) begin() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.over {
		t.running.Add(1)
	}
	return !t.over
}

func (t *term) end() {
	t.mu.Lock()
	t.over = true
	t.mu.Unlock()
	t.running.Wait()
}
