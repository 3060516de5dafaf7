// Package keeper creates a ConfigMap for each Watcher by server-side apply, and reports its state
// in the Watcher's status. The ConfigMap carries the annotations that the watcher reads, so the
// rest of the pipeline needs no change.
//
// It uses Kubernetes only, not NATS. It deletes nothing and never reads data of ConfigMaps, because
// managedFields show whether a value is still its own. With --credentials, it only compiles Secrets.
package keeper

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/kv8s/curl-me-that/proto/annotation"
	"github.com/kv8s/curl-me-that/proto/process"
	"github.com/kv8s/curl-me-that/proto/process/kube"
	watchv1 "github.com/kv8s/curl-me-that/proto/watch/v1alpha1"
	"github.com/kv8s/curl-me-that/watcher/internal/informer"
	"github.com/kv8s/curl-me-that/watcher/internal/leader"
	"github.com/kv8s/curl-me-that/watcher/internal/pace"
	"github.com/kv8s/curl-me-that/watcher/keeper/internal/plan"
	"github.com/kv8s/curl-me-that/watcher/keeper/internal/reconcile"
)

// requestTimeout is the maximum duration of one reconcile.
const requestTimeout = 10 * time.Second

// Run runs keeper until ctx is done. It returns an error only if a retry cannot help.
func Run(ctx context.Context, rt *process.Runtime, c Config, cluster *rest.Config) error {
	if err := c.Validate(); err != nil {
		return err
	}
	if c.Teams.Into != "" {
		t, err := newTeams(rt, c.Teams, cluster)
		if err != nil {
			return err
		}
		rt.Started()
		return t.run(ctx)
	}
	metrics := newMetrics(rt.Metrics, c)
	clients, err := connect(metrics.calls.Of(cluster))
	if err != nil {
		return fmt.Errorf("use the cluster: %w", err)
	}
	defer clients.Close()
	k, err := newKeeper(rt, c, clients, metrics, clock.RealClock{})
	if err != nil {
		return err
	}
	rt.Started()
	group, ctx := errgroup.WithContext(ctx)
	k.watch(ctx, group)
	group.Go(func() error { return k.awaitPods(ctx) })
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
		return leader.Run(ctx, k.config.Election, k.election)
	})
	return group.Wait()
}

// watch fills the informers until ctx is done.
func (k *keeper) watch(ctx context.Context, group *errgroup.Group) {
	fill := func(watch func(context.Context, informer.Source), objects informer.Objects, selector string) {
		group.Go(func() error {
			watch(ctx, informer.Source{
				Objects: objects, Selector: selector, StallAfter: informer.StallAfter, Redial: k.clients.Redial, Log: k.runtime.Log,
			})
			return nil
		})
	}
	fill(k.watchers.Watch, informer.ObjectsOf("Watchers", &watchv1.Watcher{}, k.clients.watching.in),
		k.config.Selection.Selector)
	fill(k.targets.Watch, informer.ConfigMaps(k.clients.Metadata), watchv1.WatcherLabel)
	if k.config.Sidecars {
		fill(k.namespaces.Watch, namespaces(k.clients.Metadata), "")
		fill(k.pods.Store.Watch, informer.ObjectsOf("pods", &corev1.Pod{}, k.clients.pods.Pods), watchv1.InjectedLabel)
	}
}

// keeper holds the running parts.
type keeper struct {
	config   Config
	runtime  *process.Runtime
	clients  *clients
	metrics  *metrics
	watchers *informer.Informer[*reconcile.Watcher]
	targets  *informer.Informer[*plan.Target]
	// namespaces has the labels that decide about sidecars.
	namespaces *informer.Informer[*reconcile.Namespace]
	// claims has the Watchers by their ConfigMap, and owners the label of each ConfigMap.
	claims, owners *reconcile.Index
	// pods has the pods with sidecars (nil if they are not watched).
	pods *reconcile.Pods
	// queue is the queue of the current term (nil if another keeper leads).
	queue    atomic.Pointer[pace.Work]
	election leader.Deps
	cache    *process.Part
	work     *reconcile.Reconciler
}

func newKeeper(rt *process.Runtime, c Config, clients *clients, metrics *metrics, wall clock.PassiveClock) (*keeper,
	error,
) {
	grammar, err := annotation.New(c.Selection.Grammar)
	if err != nil {
		return nil, err
	}
	compiler := plan.New(grammar)
	k := &keeper{
		config: c, runtime: rt, clients: clients, metrics: metrics,
		claims: reconcile.NewIndex(), owners: reconcile.NewIndex(),
		cache: rt.Health.Part("watchers"),
	}
	config := informer.Config{Namespaces: c.Namespaces}
	k.watchers = informer.New(config, informer.Deps[*watchv1.Watcher, *reconcile.Watcher]{
		Now: wall.Now, Notify: k.watcherChanged, Read: reader(compiler),
	})
	k.targets = informer.New(config, informer.Deps[*metav1.PartialObjectMetadata, *plan.Target]{
		Now: wall.Now, Notify: k.targetChanged, Read: plan.ReadTarget,
	})
	k.namespaces = informer.New(config, informer.Deps[*metav1.PartialObjectMetadata, *reconcile.Namespace]{
		Now: wall.Now, Notify: k.namespaceChanged, Read: reconcile.ReadNamespace,
	})
	protected := c.Selection.Protected
	checker, err := reconcile.NewChecker(reconcile.Checker{Enabled: c.Sidecars, Protected: protected, Labels: k.labels})
	if err != nil {
		return nil, err
	}
	if c.Sidecars {
		k.pods = &reconcile.Pods{ByWatcher: reconcile.NewIndex()}
		k.pods.Store = informer.New(config, informer.Deps[*corev1.Pod, *plan.Pod]{
			Now: wall.Now, Notify: k.podChanged, Read: plan.ReadPod,
		})
	}
	k.work = reconcile.New(reconcile.Deps{
		Protected: protected, API: clients, Watchers: k.watchers, Targets: k.targets, Claims: k.claims,
		Compiler: compiler, Injection: checker, Pods: k.pods,
		Recorder: kube.NewRecorder(clients.Events, name, wall), Metrics: metrics.reconciler, Clock: wall, Log: rt.Log,
	})
	metrics.measure(k.watchers, wall.Now)
	health := rt.Health.Part("election")
	k.election = leader.Deps{
		Leases: clients.Leases, Lead: k.lead(health), Health: health, Holding: metrics.lease,
		Log: rt.Log,
	}
	return k, nil
}

// reader compiles Watchers as they arrive, so that only plans are cached.
func reader(compiler *plan.Compiler) func(*watchv1.Watcher) *reconcile.Watcher {
	return func(w *watchv1.Watcher) *reconcile.Watcher {
		return &reconcile.Watcher{
			Meta: informer.MetaOf(w), Plan: compiler.Compile(w), Status: plan.Kept(w.Status),
			Digest: plan.DigestOf(w.Status),
		}
	}
}

// labels returns the labels of a namespace that decide about sidecars. Nothing else depends on
// namespaces, because keeper may lack permission to list them.
func (k *keeper) labels(namespace string) (labels map[string]string, known bool) {
	if !k.namespaces.Listed(namespace) {
		return nil, false
	}
	if n := k.namespaces.Get(types.NamespacedName{Name: namespace}); n != nil {
		labels = n.Labels
	}
	return labels, true
}

// namespaceChanged enqueues the Watchers of a namespace that have a sidecar.
func (k *keeper) namespaceChanged(namespace types.NamespacedName, live bool) {
	k.watchers.Each(func(w *reconcile.Watcher) {
		if w.Namespace == namespace.Name && w.Plan.Sidecar != nil {
			k.enqueue(w.NamespacedName, live)
		}
	})
}

// watcherChanged enqueues a Watcher and the oldest ones that name its current and previous ConfigMap,
// because they may have to create it now. A Watcher with a problem claims none.
func (k *keeper) watcherChanged(name types.NamespacedName, live bool) {
	var targets []types.NamespacedName
	var created int64
	if w := k.watchers.Get(name); w != nil && w.Plan.Problem == nil {
		targets, created = append(targets, w.Plan.Target), w.Plan.Created.Unix()
	}
	k.enqueue(name, live)
	for _, target := range k.claims.Set(name, created, targets...) {
		if first, found := k.claims.First(target); found {
			k.enqueue(first, live)
		}
	}
}

// targetChanged enqueues the Watcher that owns a ConfigMap, or all that name it if the owner has changed.
func (k *keeper) targetChanged(name types.NamespacedName, live bool) {
	var owner []types.NamespacedName
	if t := k.targets.Get(name); t != nil {
		owner = append(owner, types.NamespacedName{Namespace: name.Namespace, Name: t.Label})
	}
	handedOver := len(k.owners.Set(name, 0, owner...)) > 0
	for _, watcher := range k.claims.Of(name) {
		if handedOver || watchv1.LabelValue(watcher.Name) == owner[0].Name {
			k.enqueue(watcher, live)
		}
	}
}

// podChanged enqueues the Watchers whose sidecars a pod has or had. The delay limits a rollout to one
// status write a second.
func (k *keeper) podChanged(name types.NamespacedName, _ bool) {
	var watchers []types.NamespacedName
	if pod := k.pods.Store.Get(name); pod != nil {
		watchers = pod.Watchers()
	}
	before := k.pods.ByWatcher.Set(name, 0, watchers...)
	if q := k.queue.Load(); q != nil {
		for _, watcher := range slices.Concat(watchers, before) {
			q.AddAfter(watcher, reconcile.PodsPause)
		}
	}
}

// awaitPods enqueues all Watchers with a sidecar once the pods are listed.
func (k *keeper) awaitPods(ctx context.Context) error {
	if k.pods == nil {
		return nil
	}
	select {
	case <-k.pods.Store.Synced():
	case <-ctx.Done():
		return nil
	}
	k.runtime.Log.Info().Int("pods", k.pods.Store.Len()).Msg("listed the pods with sidecars")
	k.watchers.Each(func(w *reconcile.Watcher) {
		if w.Plan.Sidecar != nil || w.Status.Pods != nil {
			k.enqueue(w.NamespacedName, false)
		}
	})
	return nil
}

func (k *keeper) enqueue(name types.NamespacedName, live bool) {
	if q := k.queue.Load(); q != nil {
		q.Changed(name, live)
	}
}

// lead runs the work of the leader: it reconciles all Watchers, then each one that changes.
func (k *keeper) lead(health *process.Part) func(context.Context) error {
	return func(ctx context.Context) error {
		k.metrics.leader.Set(1)
		defer k.metrics.leader.Set(0)
		q := pace.NewWork(queueName, k.metrics.queue)
		k.queue.Store(q)
		defer k.metrics.queue.Reset()
		defer k.queue.Store(nil)
		k.watchers.Each(func(w *reconcile.Watcher) { q.Add(w.NamespacedName) })
		health.Ready()
		q.Run(ctx, k.config.Workers, func(watcher types.NamespacedName) { k.handle(ctx, q, watcher) })
		return nil
	}
}

// handle reconciles a Watcher. It finishes a reconcile in progress.
func (k *keeper) handle(ctx context.Context, q *pace.Work, watcher types.NamespacedName) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), requestTimeout)
	defer cancel()
	again, err := k.work.Reconcile(ctx, watcher)
	if err != nil {
		k.runtime.Log.Warn().Err(err).Str("watcher", watcher.String()).Msg("trying again")
		q.AddRateLimited(watcher)
		return
	}
	q.Forget(watcher)
	if again > 0 {
		q.AddAfter(watcher, again)
	}
}
