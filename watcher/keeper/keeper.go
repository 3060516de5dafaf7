// Package keeper creates a ConfigMap for each Watcher by server-side apply, and reports its state
// in the Watcher's status. The ConfigMap carries the annotations that the watcher reads, so the
// rest of the pipeline needs no change.
//
// It uses Kubernetes only, not NATS. It deletes nothing and never reads data of ConfigMaps, because
// managedFields show whether a value is still its own.
package keeper

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/pod-security-admission/policy"
	"k8s.io/utils/clock"

	"github.com/kv8s/curl-me-that/proto/annotation"
	"github.com/kv8s/curl-me-that/proto/kube"
	"github.com/kv8s/curl-me-that/proto/process"
	watchv1 "github.com/kv8s/curl-me-that/proto/watch/v1alpha1"
	"github.com/kv8s/curl-me-that/watcher/internal/informer"
	"github.com/kv8s/curl-me-that/watcher/internal/leader"
	"github.com/kv8s/curl-me-that/watcher/internal/queue"
	"github.com/kv8s/curl-me-that/watcher/keeper/internal/compile"
)

// requestTimeout is the maximum duration of one reconcile.
const requestTimeout = 10 * time.Second

// Run runs keeper until ctx is done. It returns an error only if a retry cannot help.
func Run(ctx context.Context, rt *process.Runtime, c Config, cluster *rest.Config) error {
	if err := c.Validate(); err != nil {
		return err
	}
	metrics := newMetrics(rt.Metrics, c)
	clients, err := connect(metrics.calls.Counted(cluster))
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
				Objects: objects, Selector: selector, StallAfter: informer.StallAfter, Redial: k.clients.Redial, Log: k.log,
			})
			return nil
		})
	}
	fill(k.watchers.Watch, informer.ObjectsOf("Watchers", &watchv1.Watcher{}, k.clients.watching.In),
		k.config.Selection.Selector)
	fill(k.targets.Watch, informer.ConfigMaps(k.clients.Metadata), watchv1.WatcherLabel)
	if k.config.Sidecars {
		fill(k.namespaces.Watch, namespaces(k.clients.Metadata), "")
		fill(k.pods.Watch, informer.ObjectsOf("pods", &corev1.Pod{}, k.clients.pods.Pods), watchv1.InjectedLabel)
	}
}

// keeper holds the running parts.
type keeper struct {
	config   Config
	log      zerolog.Logger
	clients  *clients
	metrics  *metrics
	watchers *informer.Informer[*cachedWatcher]
	targets  *informer.Informer[*compile.Target]
	// namespaces has the labels that decide about sidecars, and pods the pods with sidecars. Without --sidecars both
	// are empty.
	namespaces *informer.Informer[*namespace]
	pods       *informer.Informer[*compile.Pod]
	// claims has the Watchers by their ConfigMap, owners the label of each ConfigMap, and injected the pods by the
	// Watchers whose sidecars they have. The oldest claim creates a ConfigMap, so every keeper picks the same one.
	claims, owners, injected *index
	// queue is the queue of the current term (nil if another keeper leads).
	queue    atomic.Pointer[queue.Queue]
	election leader.Deps
	cache    *process.HealthPart

	compiler  *compile.Compiler
	injection injection
	recorder  *kube.Recorder
	clock     clock.PassiveClock
	// memories maps the name of each Watcher to its *memory.
	memories sync.Map
}

func newKeeper(rt *process.Runtime, c Config, clients *clients, metrics *metrics, wall clock.PassiveClock) (*keeper,
	error,
) {
	grammar, err := annotation.New(c.Selection.Grammar)
	if err != nil {
		return nil, err
	}
	security, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		return nil, fmt.Errorf("read the Pod Security standards: %w", err)
	}
	k := &keeper{
		config: c, log: rt.Log, clients: clients, metrics: metrics, clock: wall,
		claims: newIndex(), owners: newIndex(), injected: newIndex(),
		compiler: compile.NewCompiler(grammar), recorder: kube.NewRecorder(clients.Events, name, wall, kube.EventBudget{}),
		cache: rt.Health.Part("watchers"),
	}
	k.injection = injection{
		enabled: c.Sidecars, protected: c.Selection.Protected, labels: k.labels, security: security,
	}
	config := informer.Config{Namespaces: c.Namespaces}
	k.watchers = informer.New(config, informer.Deps[*watchv1.Watcher, *cachedWatcher]{
		Now: wall.Now, Notify: k.watcherChanged, Read: k.readWatcher,
	})
	k.targets = informer.New(config, informer.Deps[*metav1.PartialObjectMetadata, *compile.Target]{
		Now: wall.Now, Notify: k.targetChanged, Read: k.compiler.Target,
	})
	k.namespaces = informer.New(config, informer.Deps[*metav1.PartialObjectMetadata, *namespace]{
		Now: wall.Now, Notify: k.namespaceChanged, Read: readNamespace,
	})
	k.pods = informer.New(config, informer.Deps[*corev1.Pod, *compile.Pod]{
		Now: wall.Now, Notify: k.podChanged, Read: compile.ReadPod,
	})
	metrics.measure(k.watchers, wall.Now)
	health := rt.Health.Part("election")
	k.election = leader.Deps{
		Leases: clients.Leases, Lead: k.lead(health), Health: health, Holding: metrics.lease,
		Log: rt.Log,
	}
	return k, nil
}

// readWatcher compiles a Watcher as it arrives, so that only its plan is cached.
func (k *keeper) readWatcher(w *watchv1.Watcher) *cachedWatcher {
	return &cachedWatcher{
		Meta: informer.MetaOf(w), Plan: k.compiler.Compile(w), Status: compile.Kept(w.Status),
		StatusHash: compile.HashOf(w.Status),
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
	k.watchers.Each(func(w *cachedWatcher) {
		if w.Namespace == namespace.Name && w.Plan.Sidecar != nil {
			k.enqueue(w.NamespacedName, live)
		}
	})
}

// watcherChanged enqueues a Watcher, and notes what it claims.
func (k *keeper) watcherChanged(name types.NamespacedName, live bool) {
	var p *compile.Plan
	if w := k.watchers.Get(name); w != nil {
		p = w.Plan
	}
	k.enqueue(name, live)
	k.claim(name, p, live)
}

// claim notes the ConfigMap of a Watcher (nil: deleted), and enqueues the oldest Watchers that name its current and
// previous one, because they may have to create it now. A Watcher with a problem claims none.
func (k *keeper) claim(name types.NamespacedName, p *compile.Plan, live bool) {
	var targets []types.NamespacedName
	var created int64
	if p != nil && p.Problem == nil {
		targets, created = append(targets, p.Target), p.Created.Unix()
	}
	for _, target := range k.claims.set(name, created, targets...) {
		if first, found := k.claims.first(target); found {
			k.enqueue(first, live)
		}
	}
}

// targetChanged enqueues the Watcher that owns a ConfigMap, or all that name it if the owner has changed.
func (k *keeper) targetChanged(name types.NamespacedName, live bool) {
	var owners []types.NamespacedName
	var owner string
	if t := k.targets.Get(name); t != nil {
		owner = t.Label
		owners = append(owners, types.NamespacedName{Namespace: name.Namespace, Name: owner})
	}
	handedOver := len(k.owners.set(name, 0, owners...)) > 0
	for _, watcher := range k.claims.of(name) {
		if handedOver || watchv1.LabelValue(watcher.Name) == owner {
			k.enqueue(watcher, live)
		}
	}
}

// podChanged enqueues the Watchers whose sidecars a pod has or had. The delay limits a rollout to one
// status write a second.
func (k *keeper) podChanged(name types.NamespacedName, _ bool) {
	var watchers []types.NamespacedName
	if pod := k.pods.Get(name); pod != nil {
		watchers = pod.Watchers()
	}
	before := k.injected.set(name, 0, watchers...)
	if q := k.queue.Load(); q != nil {
		for _, watcher := range slices.Concat(watchers, before) {
			q.AddAfter(watcher, podsPause)
		}
	}
}

// awaitPods enqueues all Watchers with a sidecar once the pods are listed.
func (k *keeper) awaitPods(ctx context.Context) error {
	if !k.config.Sidecars {
		return nil
	}
	select {
	case <-k.pods.Synced():
	case <-ctx.Done():
		return nil
	}
	k.log.Info().Int("pods", k.pods.Len()).Msg("listed the pods with sidecars")
	k.watchers.Each(func(w *cachedWatcher) {
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
func (k *keeper) lead(health *process.HealthPart) func(context.Context) error {
	return func(ctx context.Context) error {
		k.metrics.leader.Set(1)
		defer k.metrics.leader.Set(0)
		q := queue.New(queueName, k.metrics.queue)
		k.queue.Store(q)
		defer k.metrics.queue.Reset()
		defer k.queue.Store(nil)
		k.watchers.Each(func(w *cachedWatcher) { q.Add(w.NamespacedName) })
		health.Ready()
		q.Run(ctx, k.config.Workers, func(watcher types.NamespacedName) { k.handle(ctx, q, watcher) })
		return nil
	}
}

// handle reconciles a Watcher. It finishes a reconcile in progress.
func (k *keeper) handle(ctx context.Context, q *queue.Queue, watcher types.NamespacedName) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), requestTimeout)
	defer cancel()
	again, err := k.reconcile(ctx, watcher)
	if err != nil {
		k.log.Warn().Err(err).Str("watcher", watcher.String()).Msg("reconcile failed, retrying")
		q.AddRateLimited(watcher)
		return
	}
	q.Forget(watcher)
	if again > 0 {
		q.AddAfter(watcher, again)
	}
}
