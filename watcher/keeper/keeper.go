// Package keeper makes a ConfigMap of each Watcher, by server-side apply, and
// reports in the status of the Watcher how it fares. The ConfigMap carries the
// annotations that the watcher reads, so that all the rest of the pipeline is as
// without Watchers.
//
// It speaks to Kubernetes only: there is no NATS, no internet and no Secret. It
// deletes nothing, and never gets data: the API server's record of who owns which
// field shows whether a value is still its own.
package keeper

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/kv8s/curl-me-that/proto/annotation"
	"github.com/kv8s/curl-me-that/proto/service"
	"github.com/kv8s/curl-me-that/proto/service/kube"
	watchv1 "github.com/kv8s/curl-me-that/proto/watch/v1alpha1"
	"github.com/kv8s/curl-me-that/watcher/internal/informer"
	"github.com/kv8s/curl-me-that/watcher/internal/leader"
	"github.com/kv8s/curl-me-that/watcher/internal/queue"
	"github.com/kv8s/curl-me-that/watcher/keeper/internal/compile"
	"github.com/kv8s/curl-me-that/watcher/keeper/internal/injection"
	"github.com/kv8s/curl-me-that/watcher/keeper/internal/reconcile"
	"github.com/kv8s/curl-me-that/watcher/keeper/internal/store"
	"github.com/kv8s/curl-me-that/watcher/keeper/internal/target"
)

// requestTimeout bounds the work on one Watcher.
const requestTimeout = 10 * time.Second

// Run is keeper: it runs until ctx is done, and returns an error only for what
// waiting does not mend.
func Run(ctx context.Context, rt *service.Runtime, c Config, cluster *rest.Config) error {
	if err := c.Validate(); err != nil {
		return err
	}
	metrics := newMetrics(rt.Metrics, c)
	clients, err := connect(metrics.calls.Of(cluster))
	if err != nil {
		return fmt.Errorf("use the cluster: %w", err)
	}
	defer clients.close()
	k, err := newKeeper(rt, c, clients, metrics)
	if err != nil {
		return err
	}
	rt.Started()
	group, ctx := errgroup.WithContext(ctx)
	for _, namespace := range c.scopes() {
		group.Go(func() error {
			k.watchers.Watch(ctx, k.source(clients.watching.objects(), c.Selector), namespace)
			return nil
		})
		group.Go(func() error {
			k.targets.Watch(ctx, k.source(informer.ConfigMaps(clients.metadata), watchv1.WatcherLabel), namespace)
			return nil
		})
		if c.Sidecars {
			group.Go(func() error {
				k.namespaces.Watch(ctx, k.source(namespaces(clients.metadata), ""), namespace)
				return nil
			})
		}
	}
	group.Go(func() error {
		for _, synced := range []<-chan struct{}{k.watchers.Synced(), k.targets.Synced()} {
			select {
			case <-synced:
			case <-ctx.Done():
				return nil
			}
		}
		k.cache.Ready()
		rt.Log.Info().Int("watchers", k.watchers.Len()).Msg("listed the Watchers")
		return k.elector.Run(ctx)
	})
	return group.Wait()
}

// keeper is what runs.
type keeper struct {
	config   Config
	runtime  *service.Runtime
	clients  *clients
	metrics  *metrics
	watchers *store.Store[reconcile.Watcher]
	targets  *store.Store[target.Target]
	// namespaces have the labels that decide about sidecars.
	namespaces *store.Store[map[string]string]
	claims     *reconcile.Claims
	// queue of the term that leads; nil: another keeper does.
	queue   atomic.Pointer[queue.Work]
	elector *leader.Elector
	cache   *service.Part
	work    *reconcile.Reconciler
}

func newKeeper(rt *service.Runtime, c Config, clients *clients, metrics *metrics) (*keeper, error) {
	grammar, err := annotation.New(c.Grammar)
	if err != nil {
		return nil, err
	}
	wall := clock.RealClock{}
	k := &keeper{
		config: c, runtime: rt, clients: clients, metrics: metrics, claims: reconcile.NewClaims(),
		cache: rt.Health.Part("watchers"),
	}
	k.watchers = store.New(store.Config[reconcile.Watcher]{
		Scopes: c.scopes(), Now: wall.Now, Notify: k.watcherChanged, Read: reader(compile.New(grammar)),
	})
	k.targets = store.New(store.Config[target.Target]{
		Scopes: c.scopes(), Now: wall.Now, Notify: k.targetChanged, Read: readTarget,
	})
	k.namespaces = store.New(store.Config[map[string]string]{
		Scopes: c.scopes(), Now: wall.Now, Notify: k.namespaceChanged, Read: readNamespace,
	})
	checker, err := injection.New(injection.Config{Enabled: c.Sidecars, Protected: c.Protected}, injection.Deps{Labels: k.labels})
	if err != nil {
		return nil, err
	}
	k.work = reconcile.New(reconcile.Config{Protected: c.Protected}, reconcile.Deps{
		API: clients.api, Watchers: k.watchers, Targets: k.targets, Claims: k.claims, Injection: checker,
		Recorder: kube.NewRecorder(clients.events, name, wall.Now), Metrics: metrics.reconciler, Clock: wall, Log: rt.Log,
	})
	metrics.measure(k.watchers, wall.Now)
	health := rt.Health.Part("election")
	k.elector = leader.New(c.Election, leader.Deps{
		Leases: clients.leases, Lead: k.lead(health), Health: health, Holding: metrics.lease, Log: rt.Log,
	})
	return k, metrics.err()
}

// source is where a store is filled from.
func (k *keeper) source(objects informer.Objects, selector string) informer.Source {
	return informer.Source{
		Objects: objects, Selector: selector, StallAfter: informer.StallAfter, Redial: k.clients.redial, Log: k.runtime.Log,
	}
}

// reader compiles Watchers as they come, so that nothing else of them is kept.
func reader(compiler *compile.Compiler) func(object any) (reconcile.Watcher, bool) {
	return func(object any) (reconcile.Watcher, bool) {
		w, ok := object.(*watchv1.Watcher)
		if !ok {
			return reconcile.Watcher{}, false
		}
		return reconcile.Watcher{Plan: compiler.Compile(w), Status: w.Status}, true
	}
}

func readTarget(object any) (target.Target, bool) {
	m, ok := object.(*metav1.PartialObjectMetadata)
	if !ok {
		return target.Target{}, false
	}
	return target.Read(m), true
}

func readNamespace(object any) (map[string]string, bool) {
	m, ok := object.(*metav1.PartialObjectMetadata)
	if !ok {
		return nil, false
	}
	return injection.LabelsOf(m), true
}

// labels returns those of a namespace that decide about sidecars. Nothing else waits
// for the namespaces, since keeper may lack the right to them.
func (k *keeper) labels(namespace string) (labels map[string]string, known bool) {
	select {
	case <-k.namespaces.Synced():
	default:
		return nil, false
	}
	if item := k.namespaces.Get(types.NamespacedName{Name: namespace}); item != nil {
		labels = item.Value
	}
	return labels, true
}

// namespaceChanged looks at the Watchers of a namespace that have a sidecar.
func (k *keeper) namespaceChanged(namespace types.NamespacedName, live bool) {
	var affected []types.NamespacedName
	k.watchers.Each(func(item *store.Item[reconcile.Watcher]) {
		if item.Namespace == namespace.Name && item.Value.Plan.Sidecar != nil {
			affected = append(affected, item.NamespacedName)
		}
	})
	for _, watcher := range affected {
		k.enqueue(watcher, live)
	}
}

// watcherChanged looks at a Watcher, and at those that wait for its ConfigMap.
func (k *keeper) watcherChanged(name types.NamespacedName, live bool) {
	if item := k.watchers.Get(name); item != nil {
		k.claims.Set(name, item.Value.Plan.Target)
		k.enqueue(name, live)
		return
	}
	freed := k.claims.Drop(name)
	k.enqueue(name, live)
	k.targetChanged(freed, live)
}

// targetChanged looks at the Watchers of a ConfigMap.
func (k *keeper) targetChanged(name types.NamespacedName, live bool) {
	for _, watcher := range k.claims.Of(name) {
		k.enqueue(watcher, live)
	}
}

func (k *keeper) enqueue(name types.NamespacedName, live bool) {
	if q := k.queue.Load(); q != nil {
		q.Changed(name, live)
	}
}

// lead returns what only the keeper does that leads: it looks at all Watchers, and
// then at each that changes.
func (k *keeper) lead(health *service.Part) func(context.Context) error {
	return func(ctx context.Context) error {
		k.metrics.leader.Set(1)
		defer k.metrics.leader.Set(0)
		q := queue.NewWork(queueName, k.metrics.queue)
		k.queue.Store(q)
		defer k.metrics.queue.Reset()
		defer k.queue.Store(nil)
		k.watchers.Each(func(item *store.Item[reconcile.Watcher]) { q.Add(item.NamespacedName) })
		health.Ready()
		group := errgroup.Group{}
		for range k.config.Workers {
			group.Go(func() error {
				for k.next(ctx, q) {
				}
				return nil
			})
		}
		<-ctx.Done()
		q.ShutDown()
		return group.Wait()
	}
}

// next works on the next Watcher; false: there will be none. What was begun is
// finished.
func (k *keeper) next(ctx context.Context, q *queue.Work) bool {
	watcher, shutdown := q.Get()
	if shutdown || q.ShuttingDown() {
		return false
	}
	defer q.Done(watcher)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), requestTimeout)
	defer cancel()
	again, err := k.work.Reconcile(ctx, watcher)
	if err != nil {
		k.runtime.Log.Warn().Err(err).Str("watcher", watcher.String()).Msg("trying again")
		q.AddRateLimited(watcher)
		return true
	}
	q.Forget(watcher)
	if again > 0 {
		q.AddAfter(watcher, again)
	}
	return true
}
