package audit

import (
	"context"
	"fmt"
	"math"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kv8s/curl-me-that/proto/condition"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/watcher/internal/plan"
	"github.com/kv8s/curl-me-that/watcher/internal/wantindex"
)

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
	// stale counts keys without a good fetch for long.
	stale int
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

// read reads the timers and dues of candidates, and records its findings. It calls enqueue for
// their objects, and for objects whose plan is about to publish anyway.
func (a *Auditor) read(
	ctx context.Context, l *look, candidates []candidate, enqueue func(types.NamespacedName),
) (found int, err error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	subjects := make([]string, 0, 2*len(candidates))
	for _, c := range candidates {
		subjects = append(subjects, c.key.Timer(), c.key.Due())
	}
	latest, err := a.deps.Client.Latest(ctx, subjects)
	if err != nil {
		return 0, err
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
		return 0, err
	}
	for _, c := range lost {
		// Somebody else overwrites a contested key again and again, so it is repaired at growing intervals.
		contested := c.finding == wantindex.BodyLost && plan.Asks(c.object, c.pair, c.want, a.deps.Index.Epoch())
		if queued[c.key] || contested {
			c.wait(l.now.Add(a.config.Interval/2), true)
		} else {
			a.record(l, c)
			found++
		}
		if !queued[c.key] {
			enqueue(wantindex.ObjectOf(c.key))
		}
	}
	return found, nil
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
			l.stale++
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
