package audit

import (
	"context"
	"fmt"
	"hash/maphash"
	"maps"
	"math"
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
		a.stale++
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

// look is one look at the keys, and the progress of the fetchers.
type look struct {
	now time.Time
	// last is the last sequence of the stream of requests.
	last uint64
	// delivered is the last sequence that was delivered to a fetcher, and floor the one
	// up to which all are acknowledged.
	delivered, floor uint64

	// due are keys whose timers are read.
	due []candidate
	// pausing are keys that pause after a request, and successes counts keys that are held
	// after one.
	pausing   map[refusal][]candidate
	successes map[refusal]int
	// unwanted are objects with wants that their annotations do not ask for.
	unwanted []types.NamespacedName
	// found counts the findings. enqueue is called for their objects.
	found   int
	enqueue func(types.NamespacedName)
}

// begin reads the progress of the fetchers.
func (a *Auditor) begin(ctx context.Context) (*look, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*requestTimeout)
	defer cancel()
	stream, err := a.deps.Client.JetStream().Stream(ctx, pipeline.Requests)
	if err != nil {
		return nil, fmt.Errorf("look up stream %s: %w", pipeline.Requests, err)
	}
	consumer, err := stream.Consumer(ctx, pipeline.FetcherConsumer)
	if err != nil {
		return nil, fmt.Errorf("look up consumer %s: %w", pipeline.FetcherConsumer, err)
	}
	info := consumer.CachedInfo()
	l := &look{
		now: a.deps.Clock.Now(), last: stream.CachedInfo().State.LastSeq,
		delivered: info.Delivered.Stream, floor: info.AckFloor.Stream,
		pausing: map[refusal][]candidate{}, successes: map[refusal]int{},
	}
	if info.NumAckPending == 0 {
		l.floor = l.delivered
		if info.NumPending == 0 {
			l.floor, l.delivered = l.last, l.last
		}
	}
	return l, nil
}

// handled reports whether a fetcher has dealt with a message: it was delivered,
// and acknowledged or given up.
func (l *look) handled(seq uint64, at time.Time, inWork time.Duration) bool {
	switch {
	case seq <= l.floor:
		return true
	case seq > l.delivered:
		return false
	default:
		return l.age(at) > inWork
	}
}

// ahead is the maximum by which a stamp may be later than now, as clocks differ.
const ahead = time.Minute

// age is the time since a stamp of the broker. A stamp from the future was made before its
// clock was set back, so its age is unknown and counts as long.
func (l *look) age(at time.Time) time.Duration {
	age := l.now.Sub(at)
	if age < -ahead {
		return math.MaxInt64
	}
	return age
}

// ahead reports whether the object holds a result of a later state of the stream: the stream
// was restored from a backup, and no result would land.
func (l *look) ahead(c candidate) bool {
	return c.entry.Fence.Epoch == c.want.Fence.Epoch && c.entry.Fence.Seq > l.last
}

// pending are the messages of a key: its timer, if due is set, and the last due since its want.
type pending struct {
	// at is when the timer fires, and setAt when it was set.
	at, setAt time.Time
	due       *v1.Due
	fired     *pipeline.Message
	// lost reports that there is no timer, or one that should have fired long ago, or one that
	// was set before the clock was set back, so that it would fire much too late.
	lost bool
	// inWork reports that a fetcher has yet to handle the due.
	inWork bool
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
			c.wait(l.now.Add(a.config.Interval/2), true)
		} else {
			a.record(l, c)
			l.found++
		}
		if !queued[c.key] {
			l.enqueue(wantindex.ObjectOf(c.key))
		}
	}
	return nil
}

// pendingOf returns the messages of a candidate.
func (a *Auditor) pendingOf(l *look, c candidate, latest map[string]pipeline.Message) pending {
	p := pending{lost: true}
	if m, ok := latest[c.key.Due()]; ok && m.Sequence > c.want.Fence.Seq {
		p.fired, p.inWork = &m, !l.handled(m.Sequence, m.Time, a.config.inWork())
	}
	m, ok := latest[c.key.Timer()]
	if !ok {
		return p
	}
	at, err := pipeline.FiresAt(m)
	if due, unreadable := pipeline.DecodeDue(c.key, m.Data); err == nil && unreadable == nil {
		p.at, p.setAt, p.due = at, m.Time, due
		p.lost = l.now.Sub(at) > a.config.overdue() || m.Time.Sub(l.now) > ahead
	}
	return p
}

// find returns the finding about a candidate. It adds a key to the table if its timer names a
// newer body than the object, and removes one whose body was equal.
func (a *Auditor) find(l *look, c candidate, p pending) wantindex.Finding {
	young, sum := a.config.young(), p.due.GetCached().GetSha256()
	equal := sum != "" && sum == c.entry.SHA256
	// Each attempt fails until the want is signed again.
	inVain := p.due.GetDetail() == v1.FailureDetail_FAILURE_DETAIL_DENIED_CREDENTIALS
	overdue := p.lost && (p.due != nil || l.age(c.want.At) > young && (p.fired == nil || l.age(p.fired.Time) > young))
	switch {
	case !c.held && c.want.Requested && equal && !p.lost:
		a.deps.Index.Update(c.key, func(w *wantindex.Want) { w.Requested = false })
		delete(a.table, c.key)
		return wantindex.NothingLost
	case !c.held:
	case inVain, overdue && !p.inWork:
		delete(a.table, c.key)
		return wantindex.TimerLost
	case sum != "" && !equal:
		c.behind = true
		a.table[c.key] = c.row
	default:
		if !c.entry.Failing() && condition.StaleDue(p.due, c.object.Request.Interval(c.pair.Key), l.now) {
			a.stale++
		}
		if c.wait(l.now.Add(young), true); equal {
			delete(a.table, c.key)
		}
		if l.ahead(c) {
			return wantindex.StreamBehind
		}
		return wantindex.NothingLost
	}
	if until := a.underWay(l, c, p); !inVain && until.After(l.now) {
		c.wait(until, true)
		return wantindex.NothingLost
	}
	return wantindex.BodyLost
}

// underWay returns the end of the work under way for a key that is not held. It is in the past
// if there is none.
func (a *Auditor) underWay(l *look, c candidate, p pending) (until time.Time) {
	fetched := false
	switch {
	case !p.inWork && !p.lost && p.leadsOn(c.entry.Failing()):
		until = l.now.Add(min(p.at.Sub(l.now)+a.config.overdue(), a.config.longest()))
	case p.inWork, p.fired != nil && l.age(p.fired.Time) < a.config.young():
		due, err := pipeline.DecodeDue(c.key, p.fired.Data)
		until, fetched = l.now.Add(a.config.Interval/2), err == nil && due.GetCause() == v1.Cause_CAUSE_REFRESH
	case p.lost:
	case l.age(p.setAt) < a.config.young():
		until, fetched = l.now.Add(a.config.young()), true
	}
	if fetched && c.waited {
		return time.Time{}
	}
	c.waited = fetched
	return until
}
