package watcher

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/go-logr/logr"
	"github.com/rs/zerolog"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	coordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"

	"github.com/kv8s/curl-me-that/proto/service/kube"
)

// elect publishes whenever this watcher holds the Lease, until ctx is done. A
// watcher that stands by is ready: its cache is warm.
func (p *publisher) elect(ctx context.Context, leases coordinationv1.LeasesGetter) error {
	c := p.config.Election
	if c.Identity == "" {
		host, err := os.Hostname()
		if err != nil {
			host = "watcher"
		}
		c.Identity = host + "_" + string(uuid.NewUUID())
	}
	log := logr.Discard()
	if p.rt.Log.GetLevel() <= zerolog.DebugLevel {
		log = kube.Logr(p.rt.Log) // it speaks of every try
	}
	ctx, cancel := context.WithCancelCause(klog.NewContext(ctx, log))
	defer cancel(nil)
	for ctx.Err() == nil {
		p.streams.Ready()
		term := &term{}
		elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
			Lock: &resourcelock.LeaseLock{
				LeaseMeta:  metav1.ObjectMeta{Namespace: c.Namespace, Name: c.Name},
				Client:     leases,
				LockConfig: resourcelock.ResourceLockConfig{Identity: c.Identity},
			},
			LeaseDuration:   c.Lease,
			RenewDeadline:   c.Renew,
			RetryPeriod:     c.Retry,
			ReleaseOnCancel: true,
			Name:            c.Name,
			Callbacks:       p.callbacks(term, c.Identity, cancel),
		})
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

// callbacks of one term. An error of publishing ends the watcher.
func (p *publisher) callbacks(term *term, identity string, fail context.CancelCauseFunc) leaderelection.LeaderCallbacks {
	log := p.rt.Log.With().Str("lease", p.config.Election.Namespace+"/"+p.config.Election.Name).Logger()
	return leaderelection.LeaderCallbacks{
		OnStartedLeading: func(ctx context.Context) {
			if !term.begin() {
				return
			}
			defer term.running.Done()
			log.Info().Msg("leading")
			p.metrics.lease.Set(1)
			defer p.metrics.lease.Set(0)
			if err := p.publish(ctx); err != nil {
				fail(err)
			}
			log.Info().Msg("no longer leading")
		},
		OnStoppedLeading: func() {},
		OnNewLeader: func(leader string) {
			if leader != identity && leader != "" {
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
