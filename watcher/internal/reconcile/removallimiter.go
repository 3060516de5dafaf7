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
	// Keys is the maximum number of keys; 0: no limit.
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
)

// removalLimiter holds removals back if there are so many at once that a mistake is likely. It
// counts them from the objects, so a restarted watcher decides alike.
type removalLimiter struct {
	// sent are the removals of the last minute, oldest first.
	sent []removals
	// tallies are the counts by namespace, made at countedAt.
	tallies   map[string]*tally
	countedAt time.Time
	// fresh is the number of removals since then.
	fresh int
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

// tally counts the keys of a namespace: all, the requested removals, and the removals within the
// last minute.
type tally struct{ keys, asked, sent int }

// exceeds reports whether more than a share of the keys are removed.
func (t tally) exceeds(percent int) bool { return (t.asked+t.sent)*100 > (t.keys+t.sent)*percent }

// tooMany reports whether the removals exceed both limits.
func (t tally) tooMany(limit MaxRemovals) bool {
	return t.asked+t.sent > limit.Keys && t.exceeds(limit.Percent)
}

// of returns the tally of a namespace.
func (b *removalLimiter) of(namespace string) *tally {
	if b.tallies[namespace] == nil {
		b.tallies[namespace] = &tally{}
	}
	return b.tallies[namespace]
}

// add counts removals.
func (b *removalLimiter) add(namespace string, at time.Time, keys int) {
	if keys == 0 {
		return
	}
	b.sent = append(b.sent, removals{namespace, at, keys})
	t := b.of(namespace)
	t.asked, t.sent = max(0, t.asked-keys), t.sent+keys
	b.fresh += keys
}

// holdBack drops the removals of a plan if the namespace has too many of them, or too many
// namespaces have. It drops all, because nothing shows which ones are intended. It returns the time
// until the next check.
func (r *Reconciler) holdBack(o *annotated.Object, p *plan.Plan) (again time.Duration) {
	limit := r.config.MaxRemovals
	if o == nil || limit.Keys == 0 {
		return 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	b := &r.limiter
	unsent := len(r.unsent(o))
	if unsent == 0 && b.held == 0 {
		return 0
	}
	if now := r.deps.Clock.Now(); now.Sub(b.countedAt) >= countInterval || b.fresh >= limit.Keys {
		r.count(now)
	}
	t := *b.of(o.Namespace)
	t.asked, t.keys = max(t.asked, unsent), max(t.keys, keysOf(o)) // it may be newer than the count
	if unsent == 0 || !b.all && !t.tooMany(limit) {
		return 0
	}
	p.Remove = nil
	if !b.all {
		p.Conditions = append(p.Conditions, heldBack(o.Namespace))
	}
	return removalWindow
}

// unlessMeant is the advice for intended removals.
const unlessMeant = " or start the watcher with --max-removals=0 until they are removed"

// count counts the keys of all objects by namespace. The caller holds the lock.
func (r *Reconciler) count(now time.Time) {
	b, limit, before := &r.limiter, r.config.MaxRemovals, r.limiter
	b.sent = slices.DeleteFunc(b.sent, func(s removals) bool { return now.Sub(s.at) > removalWindow })
	b.tallies, b.countedAt, b.fresh, b.held = map[string]*tally{}, now, 0, 0
	for _, s := range b.sent {
		b.of(s.namespace).sent += s.keys
	}
	r.deps.Objects.Each(func(o *annotated.Object) {
		if keys := keysOf(o); keys > 0 {
			t := b.of(o.Namespace)
			t.keys, t.asked = t.keys+keys, t.asked+len(r.unsent(o))
		}
	})
	sum, spread := tally{}, 0
	for _, t := range b.tallies {
		sum.keys, sum.asked, sum.sent = sum.keys+t.keys, sum.asked+t.asked, sum.sent+t.sent
		if t.exceeds(limit.Percent) {
			spread++
		}
	}
	b.all = spread >= minSpread && spread*100 > len(b.tallies)*limit.Percent && sum.asked+sum.sent > limit.Keys
	for namespace, t := range b.tallies {
		was := before.tallies[namespace]
		held := t.asked > 0 && t.tooMany(limit)
		if held && (was == nil || was.asked == 0 || !was.tooMany(limit)) {
			r.lines.Line(zerolog.ErrorLevel, heldBackLine).
				Str("namespace", namespace).Int("removals", t.asked+t.sent).Int("keys", t.keys+t.sent).
				Msg("refusing to remove so many keys of a namespace at once; check its annotations," + unlessMeant)
		}
		if held || b.all {
			b.held += t.asked
		}
	}
	r.deps.Metrics.heldBack.Set(float64(b.held))
	switch {
	case b.all && !before.all:
		r.deps.Log.Error().Int("namespaces", spread).Int("removals", sum.asked+sum.sent).Int("keys", sum.keys+sum.sent).
			Msg("refusing to remove keys in so many namespaces at once; check --annotation-keys," + unlessMeant)
	case b.held == 0 && before.held > 0:
		r.deps.Log.Info().Msg("no removals are held back any more")
	}
}

// heldBack is the condition of an object whose namespace removes too many keys.
func heldBack(namespace string) plan.Condition {
	return plan.Condition{
		Reason: pipeline.ReasonHeldBack, Occurrence: namespace,
		Note: "keys that are no longer asked for are kept: namespace " + namespace + " removes too many at once",
	}
}

// keysOf returns the number of keys that an object requests or has.
func keysOf(o *annotated.Object) int { return max(len(o.Request.Pairs), o.Status.Len()) }

// unsent returns the keys that the writer would remove and was not asked to remove yet. A key is
// ours according to managedFields, or the status if they are unknown. The caller holds the lock.
func (r *Reconciler) unsent(o *annotated.Object) []string {
	sent, ok := r.requests.of[o.NamespacedName]
	return slices.DeleteFunc(plan.Unasked(o), func(key string) bool {
		owner := o.Owner(key).State
		ours := owner == annotation.Ours || owner == annotation.Unknown && o.Status.Of(key).Written()
		return !ours || ok && sent.uid == o.UID && slices.Contains(sent.remove, key)
	})
}
