// Package reconcile applies the ConfigMap of a Watcher and reports the Watcher's status.
package reconcile

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/rs/zerolog"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/kv8s/curl-me-that/proto/process/kube"
	watchv1 "github.com/kv8s/curl-me-that/proto/watch/v1alpha1"
	"github.com/kv8s/curl-me-that/watcher/internal/informer"
	"github.com/kv8s/curl-me-that/watcher/internal/pace"
	"github.com/kv8s/curl-me-that/watcher/keeper/internal/plan"
)

// recheckInterval is the interval between checks of a foreign ConfigMap, whose deletion the watch does
// not report, and between attempts of a refused apply.
const recheckInterval = 30 * time.Second

// errOutdated means that the Watcher has changed since its plan was made. The plan is neither applied nor
// reported.
var errOutdated = errors.New("the Watcher has changed")

// Watcher is the cached part of a Watcher.
type Watcher struct {
	informer.Meta

	Plan *plan.Plan
	// Status is the input for the next status, and Digest the digest of the whole status.
	Status watchv1.WatcherStatus
	Digest plan.Digest
}

// API is the Reconciler's access to the cluster.
type API interface {
	// Watcher returns the current Watcher (nil if it does not exist).
	Watcher(ctx context.Context, name types.NamespacedName) (*watchv1.Watcher, error)
	// Find returns the metadata of a ConfigMap (nil if it does not exist).
	Find(ctx context.Context, name types.NamespacedName) (*metav1.PartialObjectMetadata, error)
	// Apply applies a ConfigMap. It conflicts if the ConfigMap is no longer at the version in the
	// body.
	Apply(ctx context.Context, name types.NamespacedName, body []byte) (*metav1.PartialObjectMetadata, error)
	// Report replaces the status of a Watcher.
	Report(ctx context.Context, p *plan.Plan, s watchv1.WatcherStatus) (*watchv1.Watcher, error)
}

// Deps are the dependencies of a Reconciler.
type Deps struct {
	// Protected namespaces are never changed.
	Protected []string
	API       API
	Watchers  *informer.Informer[*Watcher]
	Targets   *informer.Informer[*plan.Target]
	// Claims finds Watchers by their ConfigMap. The oldest creates it, so every keeper picks the same one.
	Claims    *Index
	Compiler  *plan.Compiler
	Injection *Checker
	// Pods with sidecars (nil if they are not watched).
	Pods     *Pods
	Recorder *kube.Recorder
	Metrics  *Metrics
	Clock    clock.PassiveClock
	Log      zerolog.Logger
}

// Reconciler reconciles Watchers. Concurrent calls must be about different Watchers.
type Reconciler struct {
	deps Deps
	// memories maps the name of each Watcher to its *memory.
	memories sync.Map
}

// memory is the state of a Watcher between two reconciles.
type memory struct {
	repairs pace.Repairs
	// lookedUp is the time of the last lookup of the ConfigMap by name. It found the obstacle, for
	// generation.
	lookedUp   time.Time
	obstacle   *plan.Problem
	generation int64
	// refused is the API server's refusal of the object with this digest, applied at tried.
	refused *plan.Problem
	tried   time.Time
	digest  plan.Digest
	// counted has the pods with the sidecar (nil if they were not counted yet).
	counted *counted
}

// New returns a Reconciler.
func New(d Deps) *Reconciler { return &Reconciler{deps: d} }

// Reconcile reconciles one Watcher. It returns the time until the next call (0: on the next change).
func (r *Reconciler) Reconcile(ctx context.Context, name types.NamespacedName) (again time.Duration, err error) {
	w := r.deps.Watchers.Get(name)
	if w == nil {
		r.memories.Delete(name)
		return 0, nil
	}
	remembered, _ := r.memories.LoadOrStore(name, &memory{})
	m, _ := remembered.(*memory)
	p := w.Plan.Checked()
	in := plan.Input{Plan: p, Previous: w.Status, Version: w.Version, Now: r.deps.Clock.Now()}
	if in.Obstacle = protects(r.deps.Protected, p); in.Obstacle == nil && p.Problem == nil {
		again, err = r.reconcileTarget(ctx, &in, m)
	}
	if p.Sidecar != nil {
		in.NotInjected, in.InjectionKnown = r.deps.Injection.Obstacle(p)
	}
	switch {
	case errors.Is(err, errOutdated), apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return 0, nil // the change triggers the next reconcile
	case apierrors.IsConflict(err):
		return 0, err // retried with the new version
	}
	again = pace.Soonest(again, r.observe(&in, m))
	return again, errors.Join(err, r.report(ctx, in, w.Digest))
}

// reconcileTarget applies the ConfigMap if needed, and collects the input for the status.
func (r *Reconciler) reconcileTarget(
	ctx context.Context, in *plan.Input, m *memory,
) (again time.Duration, err error) {
	current, err := r.find(ctx, in.Plan, m)
	if err != nil {
		return 0, err
	}
	if m.obstacle != nil {
		in.Obstacle = m.obstacle
		if m.obstacle.Reason == watchv1.ReasonTargetExists {
			again = recheckInterval
		}
		return again, nil
	}
	if current != nil {
		in.Target = current
		if in.Applied = isApplied(in.Plan, current); in.Applied {
			m.refused = nil
			return 0, nil
		}
	}
	if m.refused != nil && m.digest == in.Plan.Digest {
		in.Obstacle = m.refused
		if wait := recheckInterval - r.deps.Clock.Since(m.tried); wait > 0 {
			return wait, nil
		}
		return recheckInterval, r.apply(ctx, in, m)
	}
	if wait := r.limit(ctx, in, m); wait > 0 {
		return wait, nil
	}
	if in.Plan.Suspended && isRepair(in.Plan, current) {
		return 0, nil
	}
	if err := r.apply(ctx, in, m); err != nil || in.Obstacle == nil {
		return 0, err
	}
	return recheckInterval, nil // an unchanged status triggers no other reconcile
}

// isApplied reports whether a ConfigMap has everything that a plan applies, owned by keeper.
func isApplied(p *plan.Plan, t *plan.Target) bool {
	return t.Digest == p.Digest && t.Fields == p.Fields
}

// isRepair reports whether keeper last applied this plan to the ConfigMap.
func isRepair(p *plan.Plan, t *plan.Target) bool { return t != nil && t.Digest == p.Digest }

// find returns the ConfigMap that a Watcher names (nil if it does not exist). It records in the memory
// why the ConfigMap does not belong to the Watcher.
func (r *Reconciler) find(ctx context.Context, p *plan.Plan, m *memory) (*plan.Target, error) {
	if t := r.deps.Targets.Get(p.Target); t != nil {
		m.obstacle, m.lookedUp = owns(p, t), time.Time{}
		return t, nil
	}
	if first, found := r.deps.Claims.First(p.Target); found && first != p.Watcher {
		m.obstacle = owned(p, first.Name)
		return nil, nil //nolint:nilnil // the other Watcher creates it
	}
	now := r.deps.Clock.Now()
	if m.obstacle != nil && m.generation == p.Generation && now.Sub(m.lookedUp) < recheckInterval {
		return nil, nil //nolint:nilnil // looked up recently
	}
	m.obstacle, m.lookedUp, m.generation = nil, now, p.Generation
	object, err := r.deps.API.Find(ctx, p.Target)
	if err != nil || object == nil {
		return nil, err
	}
	t := plan.ReadTarget(object)
	m.obstacle = owns(p, t)
	return t, nil
}

// apply applies the ConfigMap.
func (r *Reconciler) apply(ctx context.Context, in *plan.Input, m *memory) error {
	p := in.Plan
	var version uint64
	if in.Target != nil {
		version = in.Target.Version
	}
	body, err := r.body(ctx, p, version)
	if err != nil {
		return err
	}
	repair := m.digest == p.Digest && m.refused == nil || isRepair(p, in.Target)
	m.tried = r.deps.Clock.Now()
	object, err := r.deps.API.Apply(ctx, p.Target, body)
	if err != nil {
		return r.failed(in, m, err)
	}
	m.digest, m.refused, in.Obstacle = p.Digest, nil, nil
	result := outcomeApplied
	if repair {
		result = outcomeRepaired
		m.repairs.Count(r.deps.Clock.Now())
		err = r.drifted(ctx, in)
	}
	r.deps.Metrics.apply(result)
	r.deps.Log.Info().Str("watcher", p.Watcher.String()).Str("configmap", p.Target.String()).
		Int64("generation", p.Generation).Bool("repair", repair).Msg("applied the ConfigMap")
	r.deps.Targets.Put(object)
	in.Target = plan.ReadTarget(object)
	in.Applied = isApplied(p, in.Target)
	return err
}

// body returns the request body for a plan, or errOutdated.
func (r *Reconciler) body(ctx context.Context, p *plan.Plan, version uint64) ([]byte, error) {
	w, err := r.deps.API.Watcher(ctx, p.Watcher)
	if err != nil {
		return nil, err
	}
	if w == nil || w.UID != p.UID {
		return nil, errOutdated
	}
	body, digest, err := r.deps.Compiler.Body(w, version)
	if err == nil && digest != p.Digest {
		r.deps.Watchers.Put(w)
		err = errOutdated
	}
	return body, err
}

// failed records a failed apply. It returns no error for failures that only an edit solves.
func (r *Reconciler) failed(in *plan.Input, m *memory, err error) error {
	problem := refusal(in.Plan, err)
	if problem == nil {
		r.deps.Metrics.apply(outcomeFailed)
		return fmt.Errorf("apply ConfigMap %s: %w", in.Plan.Target, err)
	}
	r.deps.Metrics.apply(outcomeRefused)
	m.refused, m.digest, in.Obstacle = problem, in.Plan.Digest, problem
	return nil
}

// report patches the status if it differs, and emits the changes as Events.
func (r *Reconciler) report(ctx context.Context, in plan.Input, before plan.Digest) error {
	s := plan.Compute(in)
	if plan.DigestOf(s) == before {
		return nil
	}
	if err := r.emit(ctx, in, s); err != nil {
		return err
	}
	w, err := r.deps.API.Report(ctx, in.Plan, s)
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // deleted or recreated; the watch delivers that
	}
	if err != nil {
		return fmt.Errorf("report the status of Watcher %s: %w", in.Plan.Watcher, err)
	}
	r.deps.Metrics.reports.Inc()
	r.deps.Watchers.Put(w)
	return nil
}
