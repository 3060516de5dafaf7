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
	"github.com/kv8s/curl-me-that/watcher/internal/plan"
	"github.com/kv8s/curl-me-that/watcher/internal/wantindex"
)

// suspect records when a key is checked again. A change of the observation replaces it.
type suspect struct {
	observed  observation
	reason    reason
	notBefore time.Time
	// requests counts the requests (8: eight or more). The last one was at requestedAt, after refusal.
	requests    uint8
	requestedAt time.Time
	refusal     refusal
	// queuedUpTo is the last sequence of the results when one of the key was first found queued (0: none).
	queuedUpTo uint64
}

// reason is the reason why a suspect is not checked before a time.
type reason int

const (
	// pausing: the key was requested.
	pausing reason = iota
	// inFlight: another attempt is pending or in flight.
	inFlight
	// landing: the writer may be about to write the body of a refresh. A key waits for that only once,
	// because with a short interval every step finds a new refresh.
	landing
)

func (r *suspect) wait(why reason, until time.Time) { r.reason, r.notBefore = why, until }

// observation is the state of a key in its object. It changes with the outcome of the key, and with
// each edit by a manager other than the writer.
type observation struct {
	holding         plan.Holding
	failure, sha256 string
	editedAt        int64
}

// refusal is the failure class in the status of a key, which keys of a namespace may share.
type refusal struct {
	namespace string
	class     v1.FailureClass
}

// candidate is a want whose timer a step may read.
type candidate struct {
	*suspect
	key     pipeline.Key
	object  *annotated.Object
	pair    annotation.Pair
	want    wantindex.Want
	entry   status.Entry
	finding wantindex.Finding
}

// stripped reports whether the key has our body, but its status was removed, for example by an admission policy.
func (c candidate) stripped() bool {
	return c.entry == status.Entry{} && c.object.Owner(c.key.Key).State == annotation.Ours
}

// candidate returns a want as a new suspect, and whether the object still asks for it.
func (a *Auditor) candidate(key pipeline.Key, w wantindex.Want) (c candidate, wanted bool) {
	o := a.deps.Object(wantindex.ObjectOf(key))
	if o == nil {
		return c, false
	}
	c = candidate{key: key, want: w, object: o, pair: annotation.Pair{Key: key.Key}, entry: o.Status.Of(key.Key)}
	c.pair.URL, wanted = o.Request.URL(key.Key)
	holding, fence := plan.HoldingOf(o, c.pair), c.entry.Fence
	// A want of a later version than the object's means that the API server was restored from a backup.
	// A requested want without a result means that its body has not landed, or was equal.
	restored := o.Version > 0 && o.Version < w.Version
	unanswered := w.Requested && (fence.Epoch != w.Fence.Epoch || fence.Seq < w.Fence.Seq)
	if holding == plan.Held && (restored || unanswered) {
		holding = plan.NotHeld
	}
	c.suspect = &suspect{observed: observation{
		holding: holding, failure: c.entry.Error, sha256: c.entry.SHA256, editedAt: o.EditedAt.Unix(),
	}}
	return c, wanted
}

// step is the state of one step of the audit.
type step struct {
	now      time.Time
	progress wantindex.Progress
	enqueue  func(types.NamespacedName)
	// lifted has the refusals that are over, and requested the time of the last request per refusal.
	lifted    map[refusal]bool
	requested map[refusal]time.Time
	// toRead are the keys whose timers are read.
	toRead []candidate
	// found counts the findings.
	found int
}

// handled reports whether a message was acknowledged, or delivered more than maxInFlight ago.
func (s *step) handled(seq uint64, at time.Time, maxInFlight time.Duration) bool {
	return seq <= s.progress.Acknowledged || seq <= s.progress.Delivered && s.age(at) > maxInFlight
}

// maxSkew is the maximum difference between clocks.
const maxSkew = time.Minute

// age returns the time since a time stamp of the broker. A future time stamp counts as very old: the
// clock was set back since.
func (s *step) age(at time.Time) time.Duration {
	if age := s.now.Sub(at); age >= -maxSkew {
		return age
	}
	return math.MaxInt64
}

// restored reports whether the fence of the object is newer than the whole stream, so that no result
// would land: the stream was restored from a backup.
func (s *step) restored(c candidate) bool {
	return c.entry.Fence.Epoch == c.want.Fence.Epoch && c.entry.Fence.Seq > s.progress.Last
}

// read reads the timers and due messages of candidates, and records findings. It enqueues the objects
// of lost keys, unless their results are queued.
func (a *Auditor) read(ctx context.Context, s *step, candidates []candidate) error {
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
		if c.finding = a.findingOf(s, c, a.pendingOf(s, c, latest)); c.finding != wantindex.NothingLost {
			lost, keys = append(lost, c), append(keys, c.key)
		}
	}
	queued, err := a.deps.Client.QueuedResults(ctx, keys)
	if err != nil {
		return err
	}
	var results wantindex.Progress
	if len(queued) > 0 {
		results, err = wantindex.ReadProgress(ctx, a.deps.Client.JetStream(), pipeline.Results, pipeline.WriterConsumer)
		if err != nil {
			return err
		}
	}
	for _, c := range lost {
		waits := queued[c.key]
		switch {
		case !waits:
			c.queuedUpTo = 0
		case c.queuedUpTo == 0, c.queuedUpTo > results.Last: // the stream may be another one
			c.queuedUpTo = results.Last
		default: // a broker that crashes may keep a result that the writer has acknowledged
			waits = c.queuedUpTo > results.Acknowledged
		}
		// The plan repairs a drifted key anyway, at growing intervals.
		contested := c.finding == wantindex.BodyLost && plan.NeedsWant(c.object, c.pair, c.want, a.deps.Index.Epoch())
		if waits || contested {
			c.wait(inFlight, s.now.Add(a.interval/2))
		} else {
			a.record(s, c)
		}
		if !waits {
			s.enqueue(wantindex.ObjectOf(c.key))
		}
	}
	return nil
}

// pending is the work that the messages of a key announce.
type pending struct {
	// timer fires at a time. It is lost if it is missing or overdue, or if the clock was set back since,
	// so that it would fire much too late.
	timer     *v1.Due
	at        time.Time
	timerLost bool
	// fired is the last due message since the want. inFlight means that no fetcher has handled it yet.
	fired    *v1.Due
	inFlight bool
	// recent means that the watch may not show the effect of a message yet.
	recent bool
}

// pendingOf returns the pending work of a candidate.
func (a *Auditor) pendingOf(s *step, c candidate, latest map[string]pipeline.Message) pending {
	p := pending{timerLost: true, recent: s.age(c.want.At) < a.grace()}
	if m, ok := latest[c.key.Due()]; ok && m.Sequence > c.want.Fence.Seq {
		p.fired, _ = pipeline.DecodeDue(c.key, m.Data) // an unreadable message counts too
		p.inFlight = !s.handled(m.Sequence, m.Time, a.maxInFlight())
		p.recent = p.recent || s.age(m.Time) < a.grace()
	}
	m := latest[c.key.Timer()]
	at, err := pipeline.FiresAt(m)
	if due, unreadable := pipeline.DecodeDue(c.key, m.Data); err == nil && unreadable == nil {
		p.timer, p.at = due, at
		p.timerLost = s.now.Sub(at) > a.maxTimerDelay() || m.Time.Sub(s.now) > maxSkew
		p.recent = p.recent || s.age(m.Time) < a.grace()
	}
	return p
}

// leadsToAttempt reports whether the timer leads to another attempt. After a good response, a timer does not
// prove that the body landed.
func (p pending) leadsToAttempt(failing bool) bool {
	switch p.timer.GetCause() {
	case v1.Cause_CAUSE_RETRY, v1.Cause_CAUSE_PARKED, v1.Cause_CAUSE_REPLAY:
		return true
	default:
		return failing && p.timer.GetReported() != v1.FailureClass_FAILURE_CLASS_UNSPECIFIED
	}
}

// findingOf returns the finding about a candidate. A key that is neither held nor lost waits.
func (a *Auditor) findingOf(s *step, c candidate, p pending) wantindex.Finding {
	sum, held := p.timer.GetCached().GetSha256(), c.observed.holding == plan.Held
	landed := sum != "" && sum == c.entry.SHA256
	// Every attempt fails until the want is signed again.
	unsigned := p.timer.GetDetail() == v1.FailureDetail_FAILURE_DETAIL_DENIED_CREDENTIALS
	switch {
	case !held && c.want.Requested && landed && !p.timerLost: // the requested body is equal
		a.deps.Index.Update(c.key, func(w *wantindex.Want) { w.Requested = false })
		delete(a.suspects, c.key)
		return wantindex.NothingLost
	case !held:
	case unsigned, s.restored(c), p.timerLost && !p.inFlight && !p.recent:
		delete(a.suspects, c.key)
		return wantindex.TimerLost
	case landed, sum == "" && a.suspects[c.key] == nil:
		if !c.entry.Failing() && condition.StaleDue(p.timer, c.object.Request.Interval(c.key.Key), s.now) {
			a.stale++
		}
		delete(a.suspects, c.key)
		return wantindex.NothingLost
	default: // the newest body has not landed
		a.suspects[c.key] = c.suspect
	}
	switch {
	case unsigned:
		return wantindex.BodyLost
	case !p.inFlight && !p.timerLost && p.leadsToAttempt(c.entry.Failing()):
		c.wait(inFlight, s.now.Add(min(p.at.Sub(s.now)+a.maxTimerDelay(), a.maxPause())))
	case p.inFlight && p.fired.GetCause() != v1.Cause_CAUSE_REFRESH:
		c.wait(inFlight, s.now.Add(a.interval/2))
	case c.reason != landing && (p.inFlight || p.recent):
		c.wait(landing, s.now.Add(a.grace()))
	default:
		return wantindex.BodyLost
	}
	return wantindex.NothingLost
}
