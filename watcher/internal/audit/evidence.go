package audit

import (
	"context"
	"fmt"
	"math"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kv8s/curl-me-that/proto/annotation"
	"github.com/kv8s/curl-me-that/proto/condition"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/watcher/internal/plan"
	"github.com/kv8s/curl-me-that/watcher/internal/wantindex"
)

// evidence is what is known to be under way. Each kind of it has an end.
type evidence struct {
	now time.Time
	// last is the last sequence of the stream of requests.
	last uint64
	// delivered is the last sequence that was delivered to a fetcher, and floor
	// the one up to which all were acknowledged.
	delivered, floor uint64
	// queued are the keys that have a result which waits for the writer.
	queued map[pipeline.Key]struct{}
	// stale counts the keys that do not fail and yet have had no good fetch for
	// long, among those whose timers this audit looks at.
	stale int
}

// atOnce is of how many keys the timer and the due are read by one request.
const atOnce = pipeline.MaxLatest / 2

// gather asks how far the fetchers and the writer have come.
func (a *Auditor) gather(ctx context.Context) (*evidence, error) {
	ctx, cancel := context.WithTimeout(ctx, 3*requestTimeout)
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
	e := &evidence{
		now: a.deps.Clock.Now(), last: stream.CachedInfo().State.LastSeq,
		delivered: info.Delivered.Stream, floor: info.AckFloor.Stream,
		queued: map[pipeline.Key]struct{}{},
	}
	if info.NumAckPending == 0 {
		e.floor = e.delivered
		if info.NumPending == 0 {
			e.floor, e.delivered = e.last, e.last
		}
	}
	return e, a.deps.Client.QueuedResults(ctx, func(key pipeline.Key) { e.queued[key] = struct{}{} })
}

// handled reports whether a fetcher has dealt with a message: it was delivered,
// and acknowledged or given up.
func (e *evidence) handled(seq uint64, at time.Time, inWork time.Duration) bool {
	switch {
	case seq <= e.floor:
		return true
	case seq > e.delivered:
		return false
	default:
		return e.age(at) > inWork
	}
}

// ahead is by how much a stamp may be later than now: what a clock is late.
const ahead = time.Minute

// age is how long ago the broker has stamped something. What is from the future
// was stamped before its clock was set back: when is not known, so it counts as long ago.
func (e *evidence) age(at time.Time) time.Duration {
	age := e.now.Sub(at)
	if age < -ahead {
		return math.MaxInt64
	}
	return age
}

// timer is a pending timer.
type timer struct {
	// at is when it fires, and setAt when it was set.
	at, setAt time.Time
	due       *v1.Due
}

// inVain reports whether each look that the timer leads to fails until the want is published
// anew: the fetchers trust no key that has signed it. A nil timer leads to none.
func (t *timer) inVain() bool {
	return t != nil && t.due.GetDetail() == v1.FailureDetail_FAILURE_DETAIL_DENIED_CREDENTIALS
}

// read reads a timer out of a message; nil: it is none, and will not fire.
func read(key pipeline.Key, m pipeline.Message) *timer {
	at, err := pipeline.FiresAt(m)
	if err != nil {
		return nil
	}
	due, err := pipeline.DecodeDue(key, m.Data)
	if err != nil {
		return nil
	}
	return &timer{at: at, setAt: m.Time, due: due}
}

// lookUp reads the timers and dues of candidates, first so many and then twice as
// many each time, and calls decide with what there is, until that returns false.
func (a *Auditor) lookUp(ctx context.Context, candidates []candidate, first int, decide func(candidate, *timer, *pipeline.Message) bool) error {
	for size := first; len(candidates) > 0; size *= 2 {
		size = min(size, atOnce)
		these := candidates[:min(size, len(candidates))]
		candidates = candidates[len(these):]
		subjects := make([]string, 0, 2*len(these))
		for _, c := range these {
			subjects = append(subjects, c.key.Timer(), c.key.Due())
		}
		limited, cancel := context.WithTimeout(ctx, requestTimeout)
		found, err := a.deps.Client.Latest(limited, subjects)
		cancel()
		if err != nil {
			return err
		}
		for _, c := range these {
			var pending *timer
			if m, ok := found[c.key.Timer()]; ok {
				pending = read(c.key, m)
			}
			var due *pipeline.Message
			if m, ok := found[c.key.Due()]; ok {
				due = &m
			}
			if !decide(c, pending, due) {
				return nil
			}
		}
	}
	return nil
}

// askAgain returns the keys, of those that are not held, for which nothing is
// under way. It calls enqueue for objects that are about to ask by themselves.
func (a *Auditor) askAgain(ctx context.Context, e *evidence, all []asks, enqueue func(types.NamespacedName)) (map[pipeline.Key]wantindex.Finding, error) {
	findings := map[pipeline.Key]wantindex.Finding{}
	for _, these := range all {
		left := these.most
		err := a.lookUp(ctx, these.of, left, func(c candidate, t *timer, due *pipeline.Message) bool {
			switch {
			case a.underWay(e, c, t, due):
				return true
			case a.planned(c):
				enqueue(wantindex.ObjectOf(c.key))
				return true
			}
			ask := a.asked[c.key]
			findings[c.key] = ask.finding()
			ask.times++
			ask.waited = false
			a.asked[c.key] = ask
			left--
			return left > 0
		})
		if err != nil {
			return findings, err
		}
	}
	return findings, nil
}

// planned reports whether a key is asked for anyway, now or, as somebody else
// writes it again and again, at the time for its next repair.
func (a *Auditor) planned(c candidate) bool {
	o := a.deps.Objects.Get(wantindex.ObjectOf(c.key))
	if o == nil {
		return true
	}
	url, wanted := o.Request.URL(c.key.Key)
	return !wanted || plan.Asks(o, annotation.Pair{Key: c.key.Key, URL: url}, c.want, a.deps.Index.Epoch())
}

// underWay reports whether something will still change a key that is not held.
func (a *Auditor) underWay(e *evidence, c candidate, t *timer, due *pipeline.Message) bool {
	if _, queued := e.queued[c.key]; queued {
		return true
	}
	if t.inVain() { // and so was the due that it followed
		return false
	}
	if due != nil && due.Sequence > c.want.Fence.Seq &&
		(!e.handled(due.Sequence, due.Time, a.config.inWork()) || e.age(due.Time) < a.config.young()) {
		return !isRefresh(c.key, due) || a.waitOnce(c.key)
	}
	if t == nil || a.lost(e, t) {
		return false
	}
	switch t.due.GetCause() {
	case v1.Cause_CAUSE_RETRY, v1.Cause_CAUSE_PARKED, v1.Cause_CAUSE_REPLAY:
		return true
	default:
		// After a failure that the status has on record, the next look is this
		// timer. After a good answer it is no evidence that the body landed.
		return t.due.GetReported() != v1.FailureClass_FAILURE_CLASS_UNSPECIFIED && c.entry.Failing() ||
			e.age(t.setAt) < a.config.young() && a.waitOnce(c.key)
	}
}

// isRefresh reports whether a due was published by a refresh timer.
func isRefresh(key pipeline.Key, m *pipeline.Message) bool {
	due, err := pipeline.DecodeDue(key, m.Data)
	return err == nil && due.GetCause() == v1.Cause_CAUSE_REFRESH
}

// waitOnce reports whether a key that is not held may wait for what a refresh
// has just led to. It may once: a key that is refreshed as often as there are
// audits shows each of them a new refresh, and none of these leads to a body as
// long as the server has no other one.
func (a *Auditor) waitOnce(key pipeline.Key) bool {
	ask := a.asked[key]
	if ask.waited {
		return false
	}
	ask.waited = true
	a.asked[key] = ask
	return true
}

// lost reports whether a timer should have fired long ago, or was set by a clock
// that has been set back since, so that it would fire much later than was meant.
func (a *Auditor) lost(e *evidence, t *timer) bool {
	return e.now.Sub(t.at) > a.config.overdue() || t.setAt.Sub(e.now) > ahead
}

// restart returns the keys, of those that are held, that nothing will refresh,
// or whose timer carries the digest of a body that has not landed.
func (a *Auditor) restart(ctx context.Context, e *evidence, refreshed []candidate) (map[pipeline.Key]wantindex.Finding, error) {
	findings := map[pipeline.Key]wantindex.Finding{}
	notLanded := map[pipeline.Key]string{}
	err := a.lookUp(ctx, refreshed, atOnce, func(c candidate, t *timer, due *pipeline.Message) bool {
		if t != nil && !c.entry.Failing() && condition.Stale(t.due, c.refresh, e.now) {
			e.stale++
		}
		if _, queued := e.queued[c.key]; queued {
			return true
		}
		switch {
		case t.inVain():
			findings[c.key] = wantindex.TimerLost
		case due != nil && due.Sequence > c.want.Fence.Seq && !e.handled(due.Sequence, due.Time, a.config.inWork()):
		case t == nil && e.age(c.want.At) > a.config.young() &&
			(due == nil || e.age(due.Time) > a.config.young()):
			findings[c.key] = wantindex.TimerLost
		case t == nil:
		case a.lost(e, t):
			findings[c.key] = wantindex.TimerLost
		case t.due.GetSettled().GetSha256() != "" && t.due.GetSettled().GetSha256() != c.entry.SHA256:
			sum := t.due.GetSettled().GetSha256()
			if e.age(t.setAt) > a.config.young() || a.notLanded[c.key] == sum {
				findings[c.key] = wantindex.BodyLost
				break
			}
			notLanded[c.key] = sum
		}
		return true
	})
	a.notLanded = notLanded
	return findings, err
}
