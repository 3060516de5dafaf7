package reconcile

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kv8s/curl-me-that/watcher/internal/annotated"
	"github.com/kv8s/curl-me-that/watcher/internal/plan"
	"github.com/kv8s/curl-me-that/watcher/internal/wantindex"
)

// MaxRemovals is how many keys may be removed within a minute. Only what exceeds
// both bounds is too much.
type MaxRemovals struct {
	// Keys is a number of keys; 0: as many as are asked for.
	Keys int
	// Percent is a share of the keys that the ConfigMaps ask for or hold.
	Percent int
}

const (
	// removalWindow is how long a removal counts.
	removalWindow = time.Minute
	// countInterval is the shortest time between two counts of all objects.
	countInterval = time.Second
)

// removalLimiter holds removals back when so many are asked for at once that a mistake
// is likely. What is asked for is read from the objects, so that a restart or
// another leader comes to the same result.
type removalLimiter struct {
	// sent is when the removals of the last minute were published.
	sent []time.Time
	// held is how many removals of each object are held back, and keys their sum;
	// it is on while there are any.
	held map[types.NamespacedName]int
	keys int
	// countedAt is when all objects were counted, and all how many keys they had.
	countedAt time.Time
	all       int
}

// holdBack takes the removals out of a plan when there are too many of them in
// all. It holds back all of them, as nothing shows which ones are meant.
func (r *Reconciler) holdBack(name types.NamespacedName, o *annotated.Object, p *plan.Plan) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.deps.Clock.Now()
	values := written(o, p.Remove)
	if r.limiter.keys > 0 {
		r.letGo(name, now, len(values) > 0)
	}
	if len(values) == 0 || r.limiter.keys == 0 && !r.tooMany(now, r.unsent(o, values)) {
		return
	}
	r.limiter.hold(name, len(values))
	r.deps.Metrics.heldBack.Set(float64(r.limiter.keys))
	p.Remove = slices.DeleteFunc(p.Remove, func(key string) bool { return slices.Contains(values, key) })
}

// written returns those of the keys of an object that hold a value of ours. Of the
// others, such as keys of somebody else, only an entry of the status goes.
func written(o *annotated.Object, keys []string) []string {
	return slices.DeleteFunc(slices.Clone(keys), func(key string) bool { return !o.Status.Of(key).Written() })
}

// tooMany reports whether the removals that are asked for exceed what is allowed.
// The caller holds the lock.
func (r *Reconciler) tooMany(now time.Time, removals int) bool {
	limit, b := r.config.MaxRemovals, &r.limiter
	if limit.Keys == 0 {
		return false
	}
	if now.Sub(b.countedAt) >= countInterval {
		b.countedAt = now
		removals, b.all = r.countKeys()
	}
	recent := b.recent(now)
	removals += recent
	if removals <= limit.Keys || removals*100 <= (b.all+recent)*limit.Percent {
		return false
	}
	r.deps.Log.Error().Int("removals", removals).Int("keys", b.all+recent).
		Msg("too many keys are no longer asked for at once, so none is removed until they are asked for again: mend --annotation-keys" +
			" or the annotations; if the removals are meant, start the watcher with --max-removals=0 until they are made")
	return true
}

// countKeys counts the keys that are to be removed and were not yet published as
// such, and all keys.
func (r *Reconciler) countKeys() (removals, all int) {
	r.deps.Objects.Each(func(o *annotated.Object) {
		all += max(len(o.Request.Pairs), o.Status.Len())
		removals += r.unsent(o, written(o, plan.Unasked(o)))
	})
	return removals, all
}

// unsent counts the keys of an object whose removal was not yet published, by
// this watcher or one before.
func (r *Reconciler) unsent(o *annotated.Object, keys []string) (n int) {
	for _, key := range keys {
		if !r.sentBefore(o, key) {
			n++
		}
	}
	return n
}

// sentBefore reports whether the removal of a key was. That of another watcher is
// known by its tombstone, which has no uid; then the entry of the key must come
// from the stream that has it, and be of this object.
func (r *Reconciler) sentBefore(o *annotated.Object, key string) bool {
	sent, ok := r.removals.of[wantindex.KeyOf(o.NamespacedName, key)]
	if !ok || sent.uid != "" {
		return ok && sent.uid == o.UID
	}
	entry := o.Status.Of(key)
	return entry.Fence.Epoch == sent.epoch && !entry.Copied(o.UID)
}

// letGo forgets what is no longer asked for: the removals of the named object,
// unless it still has some, and now and then those of all others, as an object
// may be gone unseen between two sessions. The caller holds the lock.
func (r *Reconciler) letGo(name types.NamespacedName, now time.Time, still bool) {
	b := &r.limiter
	if !still {
		b.hold(name, 0)
	}
	if now.Sub(b.countedAt) >= countInterval {
		b.countedAt = now
		for held := range b.held {
			if o := r.deps.Objects.Get(held); o == nil || len(written(o, plan.Unasked(o))) == 0 {
				b.hold(held, 0)
			}
		}
	}
	r.deps.Metrics.heldBack.Set(float64(b.keys))
	if b.keys == 0 {
		b.countedAt = time.Time{}
		r.deps.Log.Info().Msg("none of the removals that were held back is asked for any more; removing keys again")
	}
}

// hold notes how many removals of an object are held back.
func (b *removalLimiter) hold(name types.NamespacedName, keys int) {
	b.keys += keys - b.held[name]
	if keys == 0 {
		delete(b.held, name)
		return
	}
	b.held[name] = keys
}

// recent returns how many removals were published within the last minute.
func (b *removalLimiter) recent(now time.Time) int {
	old := 0
	for old < len(b.sent) && now.Sub(b.sent[old]) > removalWindow {
		old++
	}
	b.sent = b.sent[old:]
	return len(b.sent)
}
