package audit

import (
	"hash/maphash"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kv8s/curl-me-that/proto/annotation"
	"github.com/kv8s/curl-me-that/proto/condition"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/status"
	"github.com/kv8s/curl-me-that/watcher/internal/annotated"
	"github.com/kv8s/curl-me-that/watcher/internal/plan"
	"github.com/kv8s/curl-me-that/watcher/internal/wantindex"
)

// row is what is known of a key that is not held.
type row struct {
	// notBefore is when the key is looked at again: when something that is under way
	// ends, or a pause after an ask.
	notBefore time.Time
	underWay  bool
	// asks counts the asks while nobody else changed the object; asked is the last.
	asks  uint8
	asked time.Time
	// waited reports that the key has waited for what a refresh led to. It may once:
	// each look at a key with a short interval finds a new refresh.
	waited bool
	// behind reports that the object shows a body, and the timer a newer one.
	behind bool
	// appearance digests how the object appeared, and object is that version of it.
	appearance uint64
	object     *annotated.Object
	reason     v1.FailureClass
}

func (r *row) wait(until time.Time, underWay bool) { r.notBefore, r.underWay = until, underWay }

// refusal is why keys of a namespace are not held, as far as it can be known: with
// the same reason in their status, if there is any.
type refusal struct {
	namespace string
	reason    v1.FailureClass
}

// candidate is a want whose timer a look may read. Its row is in the table if the key is not held.
type candidate struct {
	*row
	key     pipeline.Key
	pair    annotation.Pair
	want    wantindex.Want
	entry   status.Entry
	held    bool
	finding wantindex.Finding
}

// look is one look at the keys.
type look struct {
	*evidence
	// due are keys that are not held, and held those whose turn it is.
	due, held []candidate
	// pausing are keys that were asked for before, and successes counts those that are held by now.
	pausing   map[refusal][]candidate
	successes map[refusal]int
	// unasked are objects whose wants and annotations do not match.
	unasked []types.NamespacedName
	// stale counts the keys that have had no good fetch for long.
	stale int
}

// sort finds the keys whose timers a look has to read.
func (a *Auditor) sort(e *evidence) *look {
	l := &look{evidence: e, pausing: map[refusal][]candidate{}, successes: map[refusal]int{}}
	if a.turn++; a.turn == 1 {
		a.refreshing = a.deps.Index.Len()
	}
	rounds := uint64(max(1, a.refreshing/max(refreshedAtOnce, a.refreshing/10)))
	a.refreshing = 0
	turn := func(key pipeline.Key) (now, timer bool) {
		n := maphash.Comparable(a.seed, key)
		return n%looks == uint64(a.turn)%looks, n/looks%rounds == uint64(a.turn)/looks%rounds
	}
	for key, r := range a.table {
		now, _ := turn(key)
		if !now && r.underWay && l.now.Before(r.notBefore) && r.object == a.deps.Objects.Get(wantindex.ObjectOf(key)) {
			continue // nothing can have changed
		}
		if w, ok := a.deps.Index.Want(key); ok {
			a.classify(l, key, w, now, now)
		} else {
			delete(a.table, key)
		}
	}
	a.deps.Index.Each(func(key pipeline.Key, w wantindex.Want) {
		if w.Refreshes {
			a.refreshing++
		}
		if now, timer := turn(key); now && a.table[key] == nil {
			a.classify(l, key, w, true, timer)
		}
	})
	return l
}

// classify adds a want to what it belongs to.
func (a *Auditor) classify(l *look, key pipeline.Key, w wantindex.Want, turn, timer bool) {
	o := a.deps.Objects.Get(wantindex.ObjectOf(key))
	c := candidate{key: key, want: w, pair: annotation.Pair{Key: key.Key}, row: a.table[key]}
	wanted := false
	if o != nil {
		c.pair.URL, wanted = o.Request.URL(key.Key)
	}
	if !wanted {
		l.unasked = append(l.unasked, wantindex.ObjectOf(key))
		delete(a.table, key)
		return
	}
	c.entry = o.Status.Of(key.Key)
	if turn && c.entry.Failing() && condition.FailsForLong(c.entry.Since, o.Request.Refresh, l.now) {
		l.stale++
	}
	now := row{appearance: a.appearance(o, c.entry), object: o, reason: pipeline.ClassOf(c.entry.Error)}
	known := c.row != nil
	same := known && c.appearance == now.appearance
	holding := holding(o, c)
	c.held = holding == plan.Held
	switch {
	case holding == plan.NotHeld, c.held && same && c.behind:
		if !l.handled(w.Fence.Seq, w.At, a.config.inWork()) {
			return
		}
		if !same {
			c.row = &now
			a.table[key] = c.row
		}
		c.object = o
		a.notHeld(l, c)
		return
	case c.held && known && c.asks > 0:
		l.successes[refusal{key.Namespace, c.reason}]++
	}
	delete(a.table, key)
	if c.held && w.Refreshes && (l.ahead(c) || timer && l.handled(w.Fence.Seq, w.At, a.config.young())) {
		c.row = &now
		l.held = append(l.held, c)
	}
}

// notHeld adds a key that is not held, unless it waits for something.
func (a *Auditor) notHeld(l *look, c candidate) {
	wait, reason := c.notBefore.Sub(l.now), refusal{c.key.Namespace, c.reason}
	switch {
	case l.age(c.want.At) < a.config.young():
	case wait <= 0, wait > a.config.longest()+ahead: // the clock was set back
		l.due = append(l.due, c)
	case !c.underWay:
		l.pausing[reason] = append(l.pausing[reason], c)
	}
}

// endPauses adds keys that pause after an ask, the oldest ask first. A success shows that
// the cause of other refusals may be gone, too. To find that out soon, one key of each
// refusal is asked for in each half interval.
func (a *Auditor) endPauses(l *look) {
	for reason, keys := range l.pausing {
		slices.SortFunc(keys, func(x, y candidate) int { return x.asked.Compare(y.asked) })
		n := perSuccess * l.successes[reason]
		last := l.age(keys[len(keys)-1].asked)
		// A refresh or an edit shows that a body has become smaller.
		if n == 0 && last >= a.config.Interval/2 && reason.reason != v1.FailureClass_FAILURE_CLASS_BODY_TOO_LARGE {
			n = 1
		}
		l.due = append(l.due, keys[:min(n, len(keys))]...)
	}
}

// ahead reports whether the object holds what a later state of the stream led to: the stream
// was brought back to a backup, and no result would land.
func (l *look) ahead(c candidate) bool {
	return c.entry.Fence.Epoch == c.want.Fence.Epoch && c.entry.Fence.Seq > l.last
}

// holding adds to what the object shows by itself what its want shows.
func holding(o *annotated.Object, c candidate) plan.Holding {
	held, fence := plan.HoldingOf(o, c.pair), c.entry.Fence
	switch {
	case held != plan.Held:
	case o.Version > 0 && o.Version < c.want.Version:
		// The want was read from a later version of the object than there is:
		// the API server was brought back to a backup.
		return plan.NotHeld
	case c.want.Requested && (fence.Epoch != c.want.Fence.Epoch || fence.Seq < c.want.Fence.Seq):
		// The body that a person asked for has not landed, or was equal.
		return plan.NotHeld
	}
	return held
}

// appearance digests an object as far as others than the writer have changed it,
// and what became of the key.
func (a *Auditor) appearance(o *annotated.Object, entry status.Entry) uint64 {
	type visible struct {
		uid, version, failure, sha256 string
		editedAt                      int64
	}
	v := visible{uid: string(o.UID), failure: entry.Error, sha256: entry.SHA256, editedAt: o.EditedAt.Unix()}
	if o.EditedAt.IsZero() {
		v.version = o.ResourceVersion()
	}
	return maphash.Comparable(a.seed, v)
}
