package keeper

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	watchv1 "github.com/kv8s/curl-me-that/proto/watch/v1alpha1"
	"github.com/kv8s/curl-me-that/watcher/internal/informer"
	"github.com/kv8s/curl-me-that/watcher/internal/queue"
	"github.com/kv8s/curl-me-that/watcher/keeper/internal/compile"
)

// recheckInterval is the interval between checks of a foreign ConfigMap, whose deletion the watch does
// not report, and between attempts of a refused apply.
const recheckInterval = 30 * time.Second

// errOutdated means that the Watcher has changed since its plan was made. The plan is neither applied nor
// reported.
var errOutdated = errors.New("the Watcher has changed")

// cachedWatcher is the cached part of a Watcher.
type cachedWatcher struct {
	informer.Meta

	Plan *compile.Plan
	// Status is the input for the next status, and StatusHash the hash of the whole one.
	Status     watchv1.WatcherStatus
	StatusHash compile.Hash
}

// memory is the state of a Watcher between two reconciles.
type memory struct {
	repairs queue.Repairs
	found   lookup
	tried   attempt
	// counted has the pods with the sidecar (nil if they were not counted yet).
	counted *counted
}

// lookup is the last lookup of a ConfigMap by name, for a generation of its Watcher.
type lookup struct {
	at         time.Time
	generation int64
	// problem is the reason why the ConfigMap does not belong to the Watcher (nil if there is none).
	problem *compile.Problem
}

// attempt is the last apply of a ConfigMap.
type attempt struct {
	at   time.Time
	hash compile.Hash
	// refused is the API server's refusal (nil if there is none).
	refused *compile.Problem
}

// reconcile reconciles one Watcher. It returns the time until the next call (0: on the next change). Concurrent calls
// must be about different Watchers.
func (k *keeper) reconcile(ctx context.Context, name types.NamespacedName) (again time.Duration, err error) {
	w := k.watchers.Get(name)
	if w == nil {
		k.memories.Delete(name)
		return 0, nil
	}
	remembered, _ := k.memories.LoadOrStore(name, &memory{})
	m, _ := remembered.(*memory)
	p := w.Plan.Checked()
	k.claim(name, p, true)
	in := compile.Input{Plan: p, Previous: w.Status, Version: w.Version, Now: k.clock.Now()}
	in.Problem = whyProtected(k.config.Selection.Protected, p)
	if in.Problem == nil && p.Problem == nil {
		again, err = k.reconcileTarget(ctx, &in, m)
	}
	if p.Sidecar != nil {
		in.NotInjected, in.InjectionKnown = k.injection.problem(p)
	}
	switch {
	case errors.Is(err, errOutdated), apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return 0, nil // the change triggers the next reconcile
	case apierrors.IsConflict(err):
		return 0, err // retried with the new version
	}
	again = queue.Soonest(again, k.observe(&in, m))
	return again, errors.Join(err, k.reportStatus(ctx, in, w.StatusHash))
}

// reconcileTarget applies the ConfigMap if needed, and collects the input for the status.
func (k *keeper) reconcileTarget(
	ctx context.Context, in *compile.Input, m *memory,
) (again time.Duration, err error) {
	current, err := k.find(ctx, in.Plan, m)
	if err != nil {
		return 0, err
	}
	if in.Problem = m.found.problem; in.Problem != nil {
		if in.Problem.Reason == watchv1.ReasonTargetExists {
			again = recheckInterval
		}
		return again, nil
	}
	in.Target = current
	if in.UpToDate = current != nil && isApplied(in.Plan, current); in.UpToDate {
		m.tried.refused = nil
		return 0, nil
	}
	next := decide(in, m, k.clock.Now())
	in.Problem = next.refused
	if next.limited {
		k.reportLimit(ctx, in, m)
	}
	if !next.apply {
		return next.wait, nil
	}
	if err := k.apply(ctx, in, m); err != nil || in.Problem == nil {
		return 0, err
	}
	return recheckInterval, nil // an unchanged status triggers no other reconcile
}

// decision says what to do about the ConfigMap of a Watcher.
type decision struct {
	// apply applies it now. If not, wait is the time until the next decision (0: the next change).
	apply bool
	wait  time.Duration
	// refused is the API server's last answer to the same object (nil if it did not refuse it).
	refused *compile.Problem
	// limited means that repairs are so frequent that the next one waits.
	limited bool
}

// decide decides about the ConfigMap of the input, which does not have all that the plan applies, or does not exist.
func decide(in *compile.Input, m *memory, now time.Time) decision {
	p := in.Plan
	same := m.tried.hash == p.Hash
	switch {
	case p.Suspended && (isRepair(p, in.Target) || in.Target == nil && in.Previous.ContentSHA256 != ""):
		return decision{} // it was applied once, so this would be a repair
	case same && m.tried.refused != nil:
		wait := recheckInterval - now.Sub(m.tried.at)
		return decision{apply: wait <= 0, wait: wait, refused: m.tried.refused}
	case same || isRepair(p, in.Target):
		wait := m.repairs.Wait(now)
		return decision{apply: wait == 0, wait: wait, limited: wait > 0}
	}
	return decision{apply: true}
}

// isApplied reports whether a ConfigMap has everything that a plan applies, owned by keeper.
func isApplied(p *compile.Plan, t *compile.Target) bool {
	return t.Hash == p.Hash && t.Fields == p.Fields
}

// isRepair reports whether keeper last applied this plan to the ConfigMap.
func isRepair(p *compile.Plan, t *compile.Target) bool { return t != nil && t.Hash == p.Hash }

// find returns the ConfigMap that a Watcher names (nil if it does not exist). It records in the memory
// why the ConfigMap does not belong to the Watcher.
func (k *keeper) find(ctx context.Context, p *compile.Plan, m *memory) (*compile.Target, error) {
	if t := k.targets.Get(p.Target); t != nil {
		m.found = lookup{problem: whyNotOurs(p, t)}
		return t, nil
	}
	if first, found := k.claims.first(p.Target); found && first != p.Watcher {
		m.found.problem = targetOwned(p, first.Name)
		return nil, nil //nolint:nilnil // the other Watcher creates it
	}
	now := k.clock.Now()
	if m.found.problem != nil && m.found.generation == p.Generation && now.Sub(m.found.at) < recheckInterval {
		return nil, nil //nolint:nilnil // looked up recently
	}
	m.found = lookup{at: now, generation: p.Generation}
	object, err := k.clients.Find(ctx, p.Target)
	if err != nil || object == nil {
		return nil, err
	}
	t := k.compiler.Target(object)
	m.found.problem = whyNotOurs(p, t)
	return t, nil
}

// apply applies the ConfigMap.
func (k *keeper) apply(ctx context.Context, in *compile.Input, m *memory) error {
	p := in.Plan
	var version uint64
	if in.Target != nil {
		version = in.Target.Version
	}
	body, err := k.body(ctx, p, version)
	if err != nil {
		return err
	}
	repair := m.tried.hash == p.Hash && m.tried.refused == nil || isRepair(p, in.Target)
	m.tried.at = k.clock.Now()
	object, err := k.clients.Apply(ctx, p.Target, body)
	if err != nil {
		return k.failed(in, m, err)
	}
	m.tried.hash, m.tried.refused, in.Problem = p.Hash, nil, nil
	result := outcomeApplied
	if repair {
		result = outcomeRepaired
		m.repairs.Count(k.clock.Now())
		err = k.drifted(ctx, in)
	}
	k.metrics.applies.WithLabelValues(result).Inc()
	k.log.Info().Str("watcher", p.Watcher.String()).Str("configmap", p.Target.String()).
		Int64("generation", p.Generation).Bool("repair", repair).Msg("applied the ConfigMap")
	k.targets.Put(object)
	in.Target = k.compiler.Target(object)
	in.UpToDate = isApplied(p, in.Target)
	return err
}

// body returns the request body for a plan, or errOutdated.
func (k *keeper) body(ctx context.Context, p *compile.Plan, version uint64) ([]byte, error) {
	w, err := k.clients.Watcher(ctx, p.Watcher)
	if err != nil {
		return nil, err
	}
	if w == nil || w.UID != p.UID {
		return nil, errOutdated
	}
	body, hash, err := k.compiler.Body(w, version)
	if err == nil && hash != p.Hash {
		k.watchers.Put(w)
		err = errOutdated
	}
	return body, err
}

// failed records a failed apply. It returns no error for failures that only an edit solves.
func (k *keeper) failed(in *compile.Input, m *memory, err error) error {
	problem := refusal(in.Plan, err)
	if problem == nil {
		k.metrics.applies.WithLabelValues(outcomeFailed).Inc()
		return fmt.Errorf("apply ConfigMap %s: %w", in.Plan.Target, err)
	}
	k.metrics.applies.WithLabelValues(outcomeRefused).Inc()
	m.tried.refused, m.tried.hash, in.Problem = problem, in.Plan.Hash, problem
	return nil
}

// reportStatus patches the status if it differs, and emits the changes as Events.
func (k *keeper) reportStatus(ctx context.Context, in compile.Input, before compile.Hash) error {
	s := compile.StatusOf(in)
	if compile.HashOf(s) == before {
		return nil
	}
	if err := k.emit(ctx, in, s); err != nil {
		return err
	}
	w, err := k.clients.Report(ctx, in.Plan, s)
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // deleted or recreated; the watch delivers that
	}
	if err != nil {
		return fmt.Errorf("report the status of Watcher %s: %w", in.Plan.Watcher, err)
	}
	k.metrics.reports.Inc()
	k.watchers.Put(w)
	return nil
}
