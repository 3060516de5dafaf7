package audit

import (
	"context"
	"hash/maphash"
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kv8s/curl-me-that/proto/annotation"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/failure"
	"github.com/kv8s/curl-me-that/proto/keystate"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/status"
	"github.com/kv8s/curl-me-that/watcher/internal/annotated"
	"github.com/kv8s/curl-me-that/watcher/internal/plan"
	"github.com/kv8s/curl-me-that/watcher/internal/wantindex"
)

// suspect records when a key is checked again. A change of what its object shows replaces it.
type suspect struct {
	shown     evidence
	last      verdict
	notBefore time.Time
	// requests counts the requests (8: eight or more). The last one was at requestedAt, when the key was in group.
	requests    uint8
	requestedAt time.Time
	group       failureGroup
	// newest is the digest of the newest body at the last request (empty: unknown).
	newest string
	// queuedUpTo is the last sequence of the results when one of the key was first found queued (0: none).
	queuedUpTo uint64
}

// waits reports whether the time of the next check follows from pending work, not from a request.
func (s *suspect) waits() bool { return s.last != bodyLost }

// evidence is what the object shows of a key. It changes with the result of the key, and with each edit by a manager
// other than the writer.
type evidence struct {
	// held means that the key has the body of its want, with the digest sha256. failure is the reason why a later attempt
	// failed (empty: none).
	held            bool
	failure, sha256 string
	editedAt        int64
}

// failureGroup has the keys of a namespace with the same failure class in the status, which often have one cause.
type failureGroup struct {
	namespace string
	class     v1.FailureClass
}

// candidate is a wanted key that a step may check.
type candidate struct {
	key    pipeline.Key
	object *annotated.Object
	pair   annotation.Pair
	want   wantindex.Want
	entry  status.Entry
	shown  evidence
	// futile means that a fetch is useless because the key is foreign or the object immutable.
	futile bool
	// suspect is what earlier steps know of the key, or a new one, which is not in Auditor.suspects.
	suspect *suspect
}

// stripped reports whether the key has our body, but its status was removed, for example by an admission policy.
func (c *candidate) stripped() bool {
	return c.entry == status.Entry{} && c.object.Owner(c.key.Key).State == annotation.Ours
}

// rejected reports whether the writer refused the content.
func (c *candidate) rejected() bool {
	return c.entry.ByWriter() && failure.ClassOf(c.entry.Error) == failure.ContentRejected
}

// candidate returns a wanted key, or nil if its object no longer asks for it.
func (a *Auditor) candidate(key pipeline.Key, w wantindex.Want, now time.Time) *candidate {
	o := a.deps.Object(wantindex.ObjectOf(key))
	if o == nil {
		return nil
	}
	url, wanted := o.Request.URL(key.Key)
	if !wanted {
		return nil
	}
	seen := o.View(key.Key)
	c := &candidate{key: key, want: w, object: o, pair: annotation.Pair{Key: key.Key, URL: url}, entry: seen.Entry}
	spec := o.Spec(c.pair)
	state := keystate.Of(spec, &seen, nil, now)
	// A status with KeyExists outlasts the other owner while the writer has no permission to write.
	c.futile = state.State == keystate.Ignored || seen.Value(spec) == keystate.Foreign ||
		state.Reason == failure.Reason(failure.Immutable)
	// A want of a later version than the object's means that the API server was restored from a backup.
	// A want by curl-now without a result means that its body has not landed, or was equal.
	fence := c.entry.Fence
	restored := o.Version > 0 && o.Version < w.Version
	unanswered := w.ByNow && (fence.Epoch != w.Fence.Epoch || fence.Seq < w.Fence.Seq)
	c.shown = evidence{
		held:    (state.State == keystate.OK || state.State == keystate.HeldBack) && !restored && !unanswered,
		failure: c.entry.Error, sha256: c.entry.SHA256, editedAt: o.EditedAt.Unix(),
	}
	if c.suspect = a.suspects[key]; c.suspect == nil || c.suspect.shown != c.shown {
		c.suspect = &suspect{shown: c.shown}
	}
	return c
}

// step is the state of one step of the audit.
type step struct {
	now      time.Time
	progress pipeline.Progress
	enqueue  func(types.NamespacedName)
	// lifted has the groups whose cause is gone, and requested the time of the last request per group.
	lifted    map[failureGroup]bool
	requested map[failureGroup]time.Time
	// toRead are the keys whose messages are read.
	toRead []*candidate
	// found counts the findings.
	found int
}

// ahead reports whether the fence of the object is newer than the whole stream.
func (s *step) ahead(c *candidate) bool {
	return c.entry.Fence.Epoch == c.want.Fence.Epoch && c.entry.Fence.Seq > s.progress.Last
}

// choose selects the keys whose messages a step reads.
func (a *Auditor) choose(s *step) {
	a.turn++
	a.lifted = map[failureGroup]bool{}
	maps.DeleteFunc(a.suspects, func(key pipeline.Key, k *suspect) bool {
		if k.requestedAt.After(s.requested[k.group]) {
			s.requested[k.group] = k.requestedAt
		}
		_, found := a.deps.Index.Want(key)
		return !found
	})
	timers := steps * uint64(max(1, min(a.deps.Index.Len()/timersPerInterval, 10)))
	a.deps.Index.Each(func(key pipeline.Key, w wantindex.Want) {
		n := maphash.Comparable(a.seed, key)
		if n%steps != a.turn%steps && a.suspects[key] == nil {
			return
		}
		c := a.candidate(key, w, s.now)
		if c == nil { // the watcher may have missed a change of the object
			delete(a.suspects, key)
			s.enqueue(wantindex.ObjectOf(key))
			return
		}
		if a.review(s, c, n%timers == a.turn%timers) {
			s.toRead = append(s.toRead, c)
		}
	})
}

// review updates the suspects by what the object shows of a key, and reports whether its messages must be read. timer
// means that it is the turn of its timer.
func (a *Auditor) review(s *step, c *candidate, timer bool) bool {
	before := a.suspects[c.key]
	if before == c.suspect || !c.shown.held && !c.futile {
		if !handled(s.progress, s.now, c.want.Fence.Seq, c.want.At, a.interval.maxInFlight()) {
			return false
		}
		a.suspects[c.key] = c.suspect
		return a.endPause(s, c)
	}
	if before != nil && before.requests > 0 && c.shown.held {
		a.lifted[before.group] = true
	}
	delete(a.suspects, c.key)
	timer = timer && handled(s.progress, s.now, c.want.Fence.Seq, c.want.At, a.interval.grace())
	return c.want.Refreshes && c.shown.held && (timer || s.ahead(c))
}

// endPause ends the pause of a suspect if its time has come, and reports that. The pause after a request also ends when
// another key of its group is held. To notice that soon, one key per group is requested every half interval.
func (a *Auditor) endPause(s *step, c *candidate) bool {
	k := c.suspect
	if !k.waits() && s.lifted[k.group] {
		k.notBefore = time.Time{}
	}
	switch wait := k.notBefore.Sub(s.now); {
	case age(s.now, c.want.At) < a.interval.grace():
		return false
	case wait <= 0, wait > a.interval.maxPause()+maxSkew: // the clock was set back
		return true
	case k.waits(), age(s.now, s.requested[k.group]) < a.interval.half(),
		// Only an edit or a refresh helps.
		k.group.class == failure.BodyTooLarge, c.rejected(),
		c.stripped():
		return false
	}
	s.requested[k.group] = s.now
	return true
}

// judge reads the messages of candidates, and carries out the verdicts.
func (a *Auditor) judge(ctx context.Context, s *step, candidates []*candidate) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	subjects := make([]string, 0, 2*len(candidates))
	for _, c := range candidates {
		subjects = append(subjects, c.key.TimerSubject(), c.key.DueSubject())
	}
	latest, err := a.deps.Client.LastMessages(ctx, subjects)
	if err != nil {
		return err
	}
	var lost []pipeline.Key
	work, verdicts := make([]pending, len(candidates)), make([]verdict, len(candidates))
	for i, c := range candidates {
		work[i] = a.interval.pendingOf(c.key, c.want, latest, s.progress, s.now)
		verdicts[i] = classify(observation{
			evidence: c.shown, available: c.entry.Available, rejected: c.rejected(), ahead: s.ahead(c),
			suspected: a.suspects[c.key] == c.suspect, wasLanding: c.suspect.last == landing,
		}, c.want, work[i])
		if verdicts[i] >= bodyLost {
			lost = append(lost, c.key)
		}
	}
	queued, err := a.deps.Client.QueuedResults(ctx, lost)
	if err != nil {
		return err
	}
	var results pipeline.Progress
	if len(queued) > 0 {
		results, err = a.deps.Client.Progress(ctx, pipeline.Results, pipeline.WriterConsumer)
		if err != nil {
			return err
		}
	}
	for i, c := range candidates {
		if verdicts[i] >= bodyLost {
			queued := c.suspect.isQueued(queued[c.key], results)
			if !queued {
				s.enqueue(wantindex.ObjectOf(c.key))
			}
			repaired := plan.NeedsWant(c.object, c.pair, c.want, a.deps.Index.Epoch())
			verdicts[i] = verdicts[i].excuse(queued, repaired)
		}
		a.carryOut(s, c, work[i], verdicts[i])
	}
	return nil
}

// carryOut records the verdict about a key in the index, from which the next plan of the object takes it, and in the
// suspects.
func (a *Auditor) carryOut(s *step, c *candidate, p pending, v verdict) {
	k, finding := c.suspect, wantindex.NothingLost
	k.last, k.notBefore = v, s.now.Add(a.interval.pause(v, p, k.requests, s.now))
	a.suspects[c.key] = k
	switch v {
	case inOrder:
		delete(a.suspects, c.key)
	case timerLost:
		finding = wantindex.TimerLost
		delete(a.suspects, c.key)
	case scheduled, inFlight, landing: // checked again after the pause
	case bodyLost:
		finding = wantindex.BodyLost
		if k.requests > 0 {
			finding = wantindex.BodyLostAgain
		}
		k.requests, k.requestedAt = min(k.requests+1, 8), s.now // 8 doublings exceed maxPause
		k.group = failureGroup{c.key.Namespace, failure.ClassOf(c.shown.failure)}
		k.newest, k.queuedUpTo = p.newest(), 0
	}
	stale := c.shown.held && failure.StaleDue(p.timer, c.object.Request.Interval(c.key.Key), s.now)
	a.deps.Index.RecordAudit(c.key, finding, stale, v == inOrder)
	if finding != wantindex.NothingLost {
		a.deps.Metrics.lost.WithLabelValues(string(finding)).Inc()
		s.found++
	}
}

// isQueued reports whether the writer has yet to handle a queued result. A broker that crashes may keep one that
// the writer has acknowledged.
func (s *suspect) isQueued(queued bool, results pipeline.Progress) bool {
	switch {
	case !queued:
		s.queuedUpTo = 0
	case s.queuedUpTo == 0, s.queuedUpTo > results.Last: // the stream may be another one
		s.queuedUpTo = results.Last
	default:
		return s.queuedUpTo > results.Acknowledged
	}
	return queued
}
