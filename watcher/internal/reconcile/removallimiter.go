package reconcile

import (
	"slices"
	"time"

	"github.com/rs/zerolog"

	"github.com/kv8s/curl-me-that/proto/annotation"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/watcher/internal/annotated"
	"github.com/kv8s/curl-me-that/watcher/internal/plan"
)

// MaxRemovals limits the keys that are removed in a namespace within a minute. Removals are held
// back if they exceed both limits.
type MaxRemovals struct {
	// Keys is the maximum number of keys (0: no limit).
	Keys int
	// Percent is the maximum share of the namespace's keys. If a larger share of the namespaces
	// exceeds it, as with a wrong --annotation-keys, all removals are held back.
	Percent int
}

const (
	// removalWindow is how long a removal counts.
	removalWindow = time.Minute
	// countInterval is the minimum time between two counts of all objects.
	countInterval = time.Second
	// minSpread is the minimum number of namespaces that hold back all others.
	minSpread = 3
	// unlessMeant is the advice for intended removals.
	unlessMeant = " or start the watcher with --max-removals=0 until they are removed"
)

// removalLimiter holds removals back if there are so many at once that a mistake is likely. It
// counts them from the objects, so a restarted watcher decides alike.
type removalLimiter struct {
	// sent are the removals of the last minute, oldest first.
	sent []removals
	// tallies are the counts by namespace, made at countedAt.
	tallies   map[string]tally
	countedAt time.Time
	// all: every namespace is held back.
	all bool
	// held is the number of removals that are held back.
	held int
}

// removals are keys of one namespace that the writer was asked to remove.
type removals struct {
	namespace string
	at        time.Time
	keys      int
}

// tally counts the keys of a namespace: all, the removals of the last minute, and those of them that
// the writer was not asked for yet.
type tally struct{ keys, removals, due int }

// exceeds reports whether more than a share of the keys are removed.
func (t tally) exceeds(percent int) bool { return t.removals*100 > t.keys*percent }

// held reports whether removals are due and exceed both limits.
func (t tally) held(limit MaxRemovals) bool {
	return t.due > 0 && t.removals > limit.Keys && t.exceeds(limit.Percent)
}

// holdBack drops the removals of a plan if the namespace has too many of them, or too many
// namespaces have. It drops all, because nothing shows which ones are intended. Removals that were
// not counted yet wait for the next count. It returns the time until the next check.
func (r *Reconciler) holdBack(o *annotated.Object, p *plan.Plan) (again time.Duration) {
	limit := r.config.MaxRemovals
	if o == nil || limit.Keys == 0 {
		return 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	b, unsent := &r.limiter, r.unsent(o)
	if unsent == 0 && b.held == 0 {
		return 0
	}
	if now := r.deps.Clock.Now(); now.Sub(b.countedAt) >= countInterval {
		r.count(now)
	}
	switch {
	case unsent == 0:
		return 0
	case o.SeenAt.After(b.countedAt):
		p.Remove = nil
		return countInterval
	case !b.all && !b.tallies[o.Namespace].held(limit):
		return 0
	case !b.all:
		p.Conditions = append(p.Conditions, plan.Condition{
			Reason: pipeline.ReasonHeldBack, Occurrence: o.Namespace,
			Note: "keys that are no longer asked for are kept: namespace " + o.Namespace + " removes too many at once",
		})
	}
	p.Remove = nil
	return removalWindow
}

// count counts the keys of all objects by namespace. The caller holds the lock.
func (r *Reconciler) count(now time.Time) {
	b, limit, before := &r.limiter, r.config.MaxRemovals, r.limiter
	b.sent = slices.DeleteFunc(b.sent, func(s removals) bool { return now.Sub(s.at) > removalWindow })
	b.tallies, b.countedAt, b.held = map[string]tally{}, now, 0
	for _, s := range b.sent {
		t := b.tallies[s.namespace]
		b.tallies[s.namespace] = tally{t.keys + s.keys, t.removals + s.keys, 0}
	}
	r.deps.Objects.Each(func(o *annotated.Object) {
		if keys, due := keysOf(o), r.unsent(o); keys > 0 {
			t := b.tallies[o.Namespace]
			b.tallies[o.Namespace] = tally{t.keys + keys, t.removals + due, t.due + due}
		}
	})
	sum, spread := tally{}, 0
	for namespace, t := range b.tallies {
		sum = tally{sum.keys + t.keys, sum.removals + t.removals, sum.due + t.due}
		if t.exceeds(limit.Percent) {
			spread++
		}
		if !t.held(limit) {
			continue
		}
		b.held += t.due
		if !before.tallies[namespace].held(limit) {
			r.lines.Line(zerolog.ErrorLevel, heldBackLine).
				Str("namespace", namespace).Int("removals", t.removals).Int("keys", t.keys).
				Msg("refusing to remove so many keys of a namespace at once: check its annotations," + unlessMeant)
		}
	}
	b.all = spread >= minSpread && spread*100 > len(b.tallies)*limit.Percent && sum.removals > limit.Keys
	if b.all {
		b.held = sum.due
	}
	r.deps.Metrics.heldBack.Set(float64(b.held))
	switch {
	case b.all && !before.all:
		r.deps.Log.Error().Int("namespaces", spread).Int("removals", sum.removals).Int("keys", sum.keys).
			Msg("refusing to remove keys in so many namespaces at once: check --annotation-keys," + unlessMeant)
	case b.held == 0 && before.held > 0:
		r.deps.Log.Info().Msg("no removals are held back any more")
	}
}

// keysOf returns the number of keys that an object requests or has.
func keysOf(o *annotated.Object) int { return max(len(o.Request.Pairs), o.Status.Len()) }

// unsent returns the number of keys that the writer would remove and was not asked to remove yet. A
// key is ours according to managedFields, or the status if they are unknown. The caller holds the
// lock.
func (r *Reconciler) unsent(o *annotated.Object) (keys int) {
	sent, ok := r.requests.of[o.NamespacedName]
	for _, key := range plan.Orphans(o) {
		owner := o.Owner(key).State
		ours := owner == annotation.Ours || owner == annotation.Unknown && o.Status.Of(key).Written()
		if ours && (!ok || sent.uid != o.UID || !slices.Contains(sent.remove, key)) {
			keys++
		}
	}
	return keys
}
