package audit

import (
	"context"
	"math"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kv8s/curl-me-that/proto/annotation"
	"github.com/kv8s/curl-me-that/proto/condition"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/status"
	"github.com/kv8s/curl-me-that/watcher/internal/annotated"
	"github.com/kv8s/curl-me-that/watcher/internal/backlog"
	"github.com/kv8s/curl-me-that/watcher/internal/plan"
	"github.com/kv8s/curl-me-that/watcher/internal/wantindex"
)

// row says when a key is read again. It starts anew when the key shows something else.
type row struct {
	shows     appearance
	reason    reason
	notBefore time.Time
	// requests counts the requests. The last one was at requestedAt, for this refusal.
	requests    uint8
	requestedAt time.Time
	refusal     refusal
}

// reason is the reason why a key is not read before a time.
type reason int

const (
	// pausing after a request.
	pausing reason = iota
	// underWay: another attempt is pending or in work.
	underWay
	// landing: the body of a refresh may be on its way. A key waits once for that, as each look at a key
	// with a short interval finds a new refresh.
	landing
)

func (r *row) wait(why reason, until time.Time) { r.reason, r.notBefore = why, until }

// appearance changes when somebody other than the writer edits the object, and when the outcome of
// the key changes.
type appearance struct {
	holding         plan.Holding
	failure, sha256 string
	editedAt        int64
}

// refusal is a common reason why keys of a namespace are not held, according to their status.
type refusal struct {
	namespace string
	class     v1.FailureClass
}

// candidate is a want whose timer a look may read.
type candidate struct {
	*row
	key     pipeline.Key
	object  *annotated.Object
	pair    annotation.Pair
	want    wantindex.Want
	entry   status.Entry
	finding wantindex.Finding
}

// candidate returns a want with a new row. It reports whether the object asks for it.
func (a *Auditor) candidate(key pipeline.Key, w wantindex.Want) (c candidate, wanted bool) {
	o := a.deps.Object(wantindex.ObjectOf(key))
	if o == nil {
		return c, false
	}
	c = candidate{key: key, want: w, object: o, pair: annotation.Pair{Key: key.Key}, entry: o.Status.Of(key.Key)}
	c.pair.URL, wanted = o.Request.URL(key.Key)
	holding, fence := plan.HoldingOf(o, c.pair), c.entry.Fence
	// If the want names a later version of the object than there is, the API server was restored from
	// a backup. If the want is newer than the body, a body that a person asked for has not landed, or
	// was equal.
	restored := o.Version > 0 && o.Version < w.Version
	unanswered := w.Requested && (fence.Epoch != w.Fence.Epoch || fence.Seq < w.Fence.Seq)
	if holding == plan.Held && (restored || unanswered) {
		holding = plan.NotHeld
	}
	c.row = &row{shows: appearance{
		holding: holding, failure: c.entry.Error, sha256: c.entry.SHA256, editedAt: o.EditedAt.Unix(),
	}}
	return c, wanted
}

// look is one look at the keys.
type look struct {
	now      time.Time
	progress backlog.Progress
	enqueue  func(types.NamespacedName)
	// accepted has the refusals whose pauses end, and requested the last request of each refusal.
	accepted  map[refusal]bool
	requested map[refusal]time.Time
	// due are keys whose timers are read.
	due []candidate
	// found counts the findings.
	found int
}

// handled reports whether a fetcher has dealt with a message: it was delivered,
// and acknowledged or given up.
func (l *look) handled(seq uint64, at time.Time, inWork time.Duration) bool {
	return seq <= l.progress.Acknowledged || seq <= l.progress.Delivered && l.age(at) > inWork
}

// ahead is the maximum by which a stamp may be later than now, as clocks differ.
const ahead = time.Minute

// age is the time since a stamp of the broker. A stamp from the future was made before its
// clock was set back, so its age is unknown and counts as long.
func (l *look) age(at time.Time) time.Duration {
	if age := l.now.Sub(at); age >= -ahead {
		return age
	}
	return math.MaxInt64
}

// behind reports whether the object holds a result of a later state of the stream: the stream
// was restored from a backup, and no result would land.
func (l *look) behind(c candidate) bool {
	return c.entry.Fence.Epoch == c.want.Fence.Epoch && c.entry.Fence.Seq > l.progress.Last
}

// read reads the timers and dues of candidates, and records its findings. It enqueues their objects,
// and objects whose plan is about to publish anyway.
func (a *Auditor) read(ctx context.Context, l *look, candidates []candidate) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	subjects := make([]string, 0, 2*len(candidates))
	for _, c := range candidates {
		subjects = append(subjects, c.key.Timer(), c.key.Due())
	}
	latest, err := a.deps.Client.Latest(ctx, subjects)
	if err != nil {
		return err
	}
	var lost []candidate
	var keys []pipeline.Key
	for _, c := range candidates {
		if c.finding = a.find(l, c, a.pendingOf(l, c, latest)); c.finding != wantindex.NothingLost {
			lost, keys = append(lost, c), append(keys, c.key)
		}
	}
	queued, err := a.deps.Client.QueuedResults(ctx, keys)
	if err != nil {
		return err
	}
	for _, c := range lost {
		// Somebody else overwrites a contested key again and again, so it is repaired at growing intervals.
		contested := c.finding == wantindex.BodyLost && plan.Asks(c.object, c.pair, c.want, a.deps.Index.Epoch())
		if queued[c.key] || contested {
			c.wait(underWay, l.now.Add(a.interval/2))
		} else {
			a.record(l, c)
		}
		if !queued[c.key] {
			l.enqueue(wantindex.ObjectOf(c.key))
		}
	}
	return nil
}

// pending is the work that the messages of a key promise.
type pending struct {
	// due is the timer, which fires at a time. It is lost if there is none, if it should have fired long
	// ago, or if it was set before the clock was set back, so that it would fire much too late.
	due  *v1.Due
	at   time.Time
	lost bool
	// fired is the last due since the want. inWork reports that a fetcher has yet to handle it.
	fired  *v1.Due
	inWork bool
	// recent: the effect of a message may be on its way to the watch.
	recent bool
}

// pendingOf returns the pending work of a candidate.
func (a *Auditor) pendingOf(l *look, c candidate, latest map[string]pipeline.Message) pending {
	p := pending{lost: true, recent: l.age(c.want.At) < a.young()}
	if m, ok := latest[c.key.Due()]; ok && m.Sequence > c.want.Fence.Seq {
		p.fired, _ = pipeline.DecodeDue(c.key, m.Data) // an unreadable one is work too
		p.inWork = !l.handled(m.Sequence, m.Time, a.inWork())
		p.recent = p.recent || l.age(m.Time) < a.young()
	}
	m := latest[c.key.Timer()]
	at, err := pipeline.FiresAt(m)
	if due, unreadable := pipeline.DecodeDue(c.key, m.Data); err == nil && unreadable == nil {
		p.due, p.at = due, at
		p.lost = l.now.Sub(at) > a.overdue() || m.Time.Sub(l.now) > ahead
		p.recent = p.recent || l.age(m.Time) < a.young()
	}
	return p
}

// leadsOn reports whether the timer leads to the next attempt. After a good response it does not
// prove that the body landed.
func (p pending) leadsOn(failing bool) bool {
	switch p.due.GetCause() {
	case v1.Cause_CAUSE_RETRY, v1.Cause_CAUSE_PARKED, v1.Cause_CAUSE_REPLAY:
		return true
	default:
		return failing && p.due.GetReported() != v1.FailureClass_FAILURE_CLASS_UNSPECIFIED
	}
}

// find returns the finding about a candidate. A key that is not held, and has none, waits.
func (a *Auditor) find(l *look, c candidate, p pending) wantindex.Finding {
	sum, held := p.due.GetCached().GetSha256(), c.shows.holding == plan.Held
	landed := sum != "" && sum == c.entry.SHA256
	// Each attempt fails until the want is signed again.
	inVain := p.due.GetDetail() == v1.FailureDetail_FAILURE_DETAIL_DENIED_CREDENTIALS
	switch {
	case !held && c.want.Requested && landed && !p.lost: // the requested body is equal
		a.deps.Index.Update(c.key, func(w *wantindex.Want) { w.Requested = false })
		delete(a.table, c.key)
		return wantindex.NothingLost
	case !held:
	case inVain, l.behind(c), p.lost && !p.inWork && !p.recent:
		delete(a.table, c.key)
		return wantindex.TimerLost
	case landed, sum == "" && a.table[c.key] == nil:
		if !c.entry.Failing() && condition.StaleDue(p.due, c.object.Request.Interval(c.key.Key), l.now) {
			a.stale++
		}
		delete(a.table, c.key)
		return wantindex.NothingLost
	default: // the newest body has not landed
		a.table[c.key] = c.row
	}
	switch {
	case inVain:
		return wantindex.BodyLost
	case !p.inWork && !p.lost && p.leadsOn(c.entry.Failing()):
		c.wait(underWay, l.now.Add(min(p.at.Sub(l.now)+a.overdue(), a.longest())))
	case p.inWork && p.fired.GetCause() != v1.Cause_CAUSE_REFRESH:
		c.wait(underWay, l.now.Add(a.interval/2))
	case c.reason != landing && (p.inWork || p.recent):
		c.wait(landing, l.now.Add(a.young()))
	default:
		return wantindex.BodyLost
	}
	return wantindex.NothingLost
}
