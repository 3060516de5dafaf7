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
	// requests counts the requests, and requestedAt is the time of the last one.
	requests    uint8
	requestedAt time.Time
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
	holding plan.Holding
	// version is set if the time of the last edit is unknown.
	version, failure, sha256 string
	editedAt                 int64
}

// refusal is a common reason why keys of a namespace are not held, according to their status.
type refusal struct {
	namespace string
	class     v1.FailureClass
}

func (r *row) refusal(key pipeline.Key) refusal {
	return refusal{key.Namespace, pipeline.ClassOf(r.shows.failure)}
}

// refusalState has the times of the last request of a key of a refusal, and of the last such key
// that was held after a request. probedIn is the look that last ended a pause.
type refusalState struct {
	requestedAt, heldAt time.Time
	probedIn            uint64
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
	c.row = &row{shows: appearance{
		holding: c.holding(), failure: c.entry.Error, sha256: c.entry.SHA256, editedAt: o.EditedAt.Unix(),
	}}
	if o.EditedAt.IsZero() {
		c.shows.version = o.ResourceVersion()
	}
	return c, wanted
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

// state of a key in the metric keys.
type state string

const (
	isOK      state = "ok"
	isFailing state = "failing"
	isPending state = "pending"
)

func (c candidate) state() state {
	switch {
	case c.entry.Failing():
		return isFailing
	case c.shows.holding == plan.Held:
		return isOK
	}
	return isPending
}

// look is one look at the keys.
type look struct {
	now      time.Time
	progress backlog.Progress
	// due are keys whose timers are read.
	due []candidate
	// unwanted are objects with wants that their annotations do not ask for.
	unwanted []types.NamespacedName
	// found counts the findings. enqueue is called for their objects.
	found   int
	enqueue func(types.NamespacedName)
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

// ahead reports whether the object holds a result of a later state of the stream: the stream
// was restored from a backup, and no result would land.
func (l *look) ahead(c candidate) bool {
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

// pending are the messages of a key: its timer, if there is a due, and the last due since its want.
type pending struct {
	due *v1.Due
	// at is when the timer fires, and setAt when it was set.
	at, setAt time.Time
	// lost reports that there is no timer, or one that should have fired long ago, or one that
	// was set before the clock was set back, so that it would fire much too late.
	lost bool
	// firedAt is when the due was published. inWork reports that a fetcher has yet to handle it.
	firedAt time.Time
	inWork  bool
	leadsTo reason
}

// pendingOf returns the messages of a candidate.
func (a *Auditor) pendingOf(l *look, c candidate, latest map[string]pipeline.Message) pending {
	p := pending{lost: true}
	if m, ok := latest[c.key.Due()]; ok && m.Sequence > c.want.Fence.Seq {
		due, err := pipeline.DecodeDue(c.key, m.Data)
		p.firedAt, p.inWork = m.Time, !l.handled(m.Sequence, m.Time, a.inWork())
		p.leadsTo = underWay
		if err == nil && due.GetCause() == v1.Cause_CAUSE_REFRESH {
			p.leadsTo = landing
		}
	}
	m, ok := latest[c.key.Timer()]
	if !ok {
		return p
	}
	at, err := pipeline.FiresAt(m)
	if due, unreadable := pipeline.DecodeDue(c.key, m.Data); err == nil && unreadable == nil {
		p.due, p.at, p.setAt = due, at, m.Time
		p.lost = l.now.Sub(at) > a.overdue() || m.Time.Sub(l.now) > ahead
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

// find returns the finding about a candidate.
func (a *Auditor) find(l *look, c candidate, p pending) wantindex.Finding {
	sum := p.due.GetCached().GetSha256()
	equal := sum != "" && sum == c.entry.SHA256
	// Each attempt fails until the want is signed again.
	inVain := p.due.GetDetail() == v1.FailureDetail_FAILURE_DETAIL_DENIED_CREDENTIALS
	switch held := c.shows.holding == plan.Held; {
	case !held && c.want.Requested && equal && !p.lost:
		a.deps.Index.Update(c.key, func(w *wantindex.Want) { w.Requested = false })
		delete(a.table, c.key)
		return wantindex.NothingLost
	case !held:
	case inVain, a.timerLost(l, c, p):
		delete(a.table, c.key)
		return wantindex.TimerLost
	case sum != "" && !equal: // the newest body has not landed
		a.table[c.key] = c.row
	default:
		if !c.entry.Failing() && condition.StaleDue(p.due, c.object.Request.Interval(c.pair.Key), l.now) {
			a.stale++
		}
		if c.wait(underWay, l.now.Add(a.young())); equal {
			delete(a.table, c.key)
		}
		if l.ahead(c) {
			return wantindex.StreamBehind
		}
		return wantindex.NothingLost
	}
	before := c.reason
	if why, until := a.await(l, c, p); !inVain && until.After(l.now) && (why != landing || before != landing) {
		c.wait(why, until)
		return wantindex.NothingLost
	}
	return wantindex.BodyLost
}

// timerLost reports whether nothing will refresh a held key.
func (a *Auditor) timerLost(l *look, c candidate, p pending) bool {
	return p.lost && !p.inWork && (p.due != nil || l.age(c.want.At) > a.young() && l.age(p.firedAt) > a.young())
}

// await returns the reason to wait for a key that is not held, and until when. It is in the past if
// there is none.
func (a *Auditor) await(l *look, c candidate, p pending) (why reason, until time.Time) {
	switch {
	case !p.inWork && !p.lost && p.leadsOn(c.entry.Failing()):
		return underWay, l.now.Add(min(p.at.Sub(l.now)+a.overdue(), a.longest()))
	case p.inWork || l.age(p.firedAt) < a.young():
		return p.leadsTo, l.now.Add(a.interval / 2)
	case !p.lost && l.age(p.setAt) < a.young():
		return landing, l.now.Add(a.young())
	default:
		return pausing, time.Time{}
	}
}
