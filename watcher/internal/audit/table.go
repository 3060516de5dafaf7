package audit

import (
	"hash/maphash"
	"maps"
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

// row is the state of a key that is not held.
type row struct {
	// notBefore is when the key is read again: at the end of the work under way, or of
	// the pause after a request.
	notBefore time.Time
	underWay  bool
	// requests counts the requests since somebody else changed the object, and
	// requestedAt is the time of the last one.
	requests    uint8
	requestedAt time.Time
	// waited reports that the key has waited for the result of a refresh. It may once:
	// each look at a key with a short interval finds a new refresh.
	waited bool
	// behind reports that the object shows a body, and the timer a newer one.
	behind     bool
	appearance appearance
}

func (r *row) wait(until time.Time, underWay bool) { r.notBefore, r.underWay = until, underWay }

// appearance changes when somebody other than the writer edits the object, and when the outcome of
// the key changes.
type appearance struct {
	uid                      types.UID
	version, failure, sha256 string
	editedAt                 int64
}

func appearanceOf(o *annotated.Object, entry status.Entry) appearance {
	v := appearance{uid: o.UID, failure: entry.Error, sha256: entry.SHA256, editedAt: o.EditedAt.Unix()}
	if o.EditedAt.IsZero() {
		v.version = o.ResourceVersion()
	}
	return v
}

// refusal is a common reason why keys of a namespace are not held, according to their status.
type refusal struct {
	namespace string
	reason    v1.FailureClass
}

func refusalOf(key pipeline.Key, r *row) refusal {
	return refusal{key.Namespace, pipeline.ClassOf(r.appearance.failure)}
}

// candidate is a want whose timer a look may read. Its row is in the table if the key is
// not held.
type candidate struct {
	*row
	key     pipeline.Key
	object  *annotated.Object
	pair    annotation.Pair
	want    wantindex.Want
	entry   status.Entry
	held    bool
	finding wantindex.Finding
}

// classifyAll finds the keys whose timers a look has to read.
func (a *Auditor) classifyAll(l *look) {
	a.turn++
	keys := a.deps.Index.Len()
	rounds := uint64(max(1, keys/max(timersAtOnce, keys/10)))
	maps.DeleteFunc(a.table, func(key pipeline.Key, _ *row) bool {
		_, found := a.deps.Index.Want(key)
		return !found
	})
	a.deps.Index.Each(func(key pipeline.Key, w wantindex.Want) {
		n, known := maphash.Comparable(a.seed, key), a.table[key] != nil
		turn := n%looks == uint64(a.turn)%looks
		if turn || known {
			a.classify(l, key, w, turn, turn && (known || n/looks%rounds == uint64(a.turn)/looks%rounds))
		}
	})
}

// classify adds a want to a list of the look, if it belongs to one. Turn and timer report
// whether it is the turn of the key, and of its timer if it is held.
func (a *Auditor) classify(l *look, key pipeline.Key, w wantindex.Want, turn, timer bool) {
	o := a.deps.Object(wantindex.ObjectOf(key))
	c := candidate{key: key, want: w, object: o, pair: annotation.Pair{Key: key.Key}, row: a.table[key]}
	wanted := false
	if o != nil {
		c.pair.URL, wanted = o.Request.URL(key.Key)
	}
	if !wanted {
		l.unwanted = append(l.unwanted, wantindex.ObjectOf(key))
		delete(a.table, key)
		return
	}
	c.entry = o.Status.Of(key.Key)
	if turn && c.entry.Failing() && condition.FailsForLong(c.entry.Since, o.Request.Interval(key.Key), l.now) {
		l.stale++
	}
	now := row{appearance: appearanceOf(o, c.entry)}
	known := c.row != nil
	same := known && c.appearance == now.appearance
	holding := c.holding()
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
		a.notHeld(l, c)
		return
	case c.held && known && c.requests > 0:
		l.successes[refusalOf(key, c.row)]++
	}
	delete(a.table, key)
	if c.held && w.Refreshes && (l.ahead(c) || timer && l.handled(w.Fence.Seq, w.At, a.config.young())) {
		c.row = &now
		l.due = append(l.due, c)
	}
}

// notHeld adds a key that is not held, unless it waits for something.
func (a *Auditor) notHeld(l *look, c candidate) {
	wait, reason := c.notBefore.Sub(l.now), refusalOf(c.key, c.row)
	switch {
	case l.age(c.want.At) < a.config.young():
	case wait <= 0, wait > a.config.longest()+ahead: // the clock was set back
		l.due = append(l.due, c)
	case !c.underWay:
		l.pausing[reason] = append(l.pausing[reason], c)
	}
}

// endPauses adds keys that pause after a request, the oldest request first. A success shows
// that the cause of other refusals may be gone, too. To find that out soon, one key of each
// refusal is requested in each half interval.
func (a *Auditor) endPauses(l *look) {
	for reason, keys := range l.pausing {
		slices.SortFunc(keys, func(x, y candidate) int { return x.requestedAt.Compare(y.requestedAt) })
		n := perSuccess * l.successes[reason]
		last := l.age(keys[len(keys)-1].requestedAt)
		// A refresh or an edit shows that a body has become smaller.
		if n == 0 && last >= a.config.Interval/2 && reason.reason != v1.FailureClass_FAILURE_CLASS_BODY_TOO_LARGE {
			n = 1
		}
		l.due = append(l.due, keys[:min(n, len(keys))]...)
	}
}

// holding returns whether a key is held, according to its object and its want.
func (c candidate) holding() plan.Holding {
	held, o, fence := plan.HoldingOf(c.object, c.pair), c.object, c.entry.Fence
	// If the want names a later version of the object than there is, the API server was restored from
	// a backup. If the want is newer than the body, a body that a person asked for has not landed, or
	// was equal.
	restored := o.Version > 0 && o.Version < c.want.Version
	unanswered := c.want.Requested && (fence.Epoch != c.want.Fence.Epoch || fence.Seq < c.want.Fence.Seq)
	if held == plan.Held && (restored || unanswered) {
		return plan.NotHeld
	}
	return held
}
