package watcher

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	coordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"

	"github.com/kv8s/curl-me-that/proto/service"
	"github.com/kv8s/curl-me-that/proto/service/kube"
)

// elect calls lead whenever this watcher holds the Lease, with a context that
// ends when it loses it, until ctx is done. A watcher that stands by is ready:
// its cache is warm. An error of lead ends it.
func elect(ctx context.Context, rt *service.Runtime, c ElectionConfig, cluster *rest.Config, lead func(context.Context) error) error {
	client, err := coordinationv1.NewForConfig(cluster)
	if err != nil {
		return fmt.Errorf("use the cluster: %w", err)
	}
	if c.Identity == "" {
		host, err := os.Hostname()
		if err != nil {
			host = "watcher"
		}
		c.Identity = host + "_" + string(uuid.NewUUID())
	}
	ctx, cancel := context.WithCancelCause(klog.NewContext(ctx, kube.Logr(rt.Log)))
	defer cancel(nil)
	for ctx.Err() == nil {
		term := &term{}
		elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
			Lock: &resourcelock.LeaseLock{
				LeaseMeta:  metav1.ObjectMeta{Namespace: c.Namespace, Name: c.Name},
				Client:     client,
				LockConfig: resourcelock.ResourceLockConfig{Identity: c.Identity},
			},
			LeaseDuration:   c.Lease,
			RenewDeadline:   c.Renew,
			RetryPeriod:     c.Retry,
			ReleaseOnCancel: true,
			Name:            c.Name,
			Callbacks: leaderelection.LeaderCallbacks{
				OnStartedLeading: func(ctx context.Context) {
					if !term.begin() {
						return
					}
					defer term.running.Done()
					rt.Log.Info().Str("lease", c.Namespace+"/"+c.Name).Msg("leading")
					if err := lead(ctx); err != nil {
						cancel(err)
					}
				},
				OnStoppedLeading: func() {},
				OnNewLeader: func(leader string) {
					if leader != c.Identity {
						rt.Log.Info().Str("leader", leader).Msg("standing by")
					}
				},
			},
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
