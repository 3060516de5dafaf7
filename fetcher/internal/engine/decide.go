package engine

import (
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/kv8s/curl-me-that/fetcher/internal/get"
	"github.com/kv8s/curl-me-that/fetcher/internal/throttle"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/failure"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/rule"
	"github.com/kv8s/curl-me-that/proto/weburl"
)

// outcome is the outcome of a message, from a closed set.
type outcome string

const (
	outcomeContent    outcome = "content"    // a new body was published
	outcomeRecovered  outcome = "recovered"  // the key was failing and recovered with its old body
	outcomeUnmodified outcome = "unmodified" // the key already has this body
	outcomeInSync     outcome = "in_sync"    // nothing to fetch before the next refresh
	outcomeRetry      outcome = "retry"      // the attempt failed, and a retry is scheduled
	outcomeGaveUp     outcome = "gave_up"    // the last attempt failed, with a dead letter within the budget
	outcomeParked     outcome = "parked"     // the key waits without an attempt
	outcomeQueued     outcome = "queued"     // the key is parked only until its turn in the queue
	outcomeSuperseded outcome = "superseded" // the want was replaced or removed
	outcomeTombstone  outcome = "tombstone"  // the message is a tombstone
	outcomeMalformed  outcome = "malformed"  // the message cannot be handled and becomes a dead letter
	outcomePostponed  outcome = "postponed"  // the broker did not accept the outcome during a drain, or a replica lags
)

// decision is what to do at the end of an attempt. Engine.carryOut does it.
type decision struct {
	outcome outcome
	// failure is nil without one.
	failure *fetchFailure
	parking parking
	// wait until the next try of the key, if known.
	wait time.Duration
	// timer is the due of the next try, at its time. Nil: none. Then done means that the key needs no timer any more.
	timer *v1.Due
	at    time.Time
	done  bool
	// deadLetter and result to publish. Nil: none.
	deadLetter *v1.DeadLetter
	result     *v1.Result
	// dropped reports that there is no dead letter, because of the budget or because the stream rejected it.
	dropped bool
}

// disposition acknowledges a handled message, because a timer or a dead letter keeps the remaining work.
func (d decision) disposition() pipeline.Disposition {
	switch {
	case d.outcome == outcomeMalformed:
		return pipeline.DeadLetter(&pipeline.ClassError{Class: d.failure.Class, Err: d.failure.cause})
	case d.outcome == outcomePostponed && d.wait == 0:
		return pipeline.GiveBack()
	case d.outcome == outcomePostponed:
		return pipeline.Retry(d.wait)
	}
	return pipeline.Ack()
}

// decide returns the decision on the end of an attempt. It is a pure function. random is in [0, 1).
func (s *Schedule) decide(t *trigger, end attemptEnd, now time.Time, random float64) decision {
	switch {
	case end.outcome == outcomeInSync && t.interval() > 0:
		d := s.refresh(t, t.want.GetCached(), s.Refresh.Next(now, t.want.GetUrl(), t.interval()), now)
		d.outcome, d.timer.Cached = outcomeInSync, t.want.GetCached()
		return d
	case end.outcome != "":
		return decision{outcome: end.outcome, failure: end.failure, wait: end.wait}
	case end.failure != nil:
		return s.afterFailure(t, *end.failure, now, random)
	case end.parking != nil:
		return park(t, *end.parking, now, random)
	}
	return s.afterResponse(t, *end.response, now, random)
}

// afterResponse publishes a body that the key does not have, or its recovery.
func (s *Schedule) afterResponse(t *trigger, got get.Response, now time.Time, random float64) decision {
	body := bodyAfter(t, got, now, random)
	// With an interval, other content than the pinned one is offered to the owner of the key.
	if sum := t.want.GetSha256(); sum != "" && sum != body.GetSha256() && t.interval() <= 0 {
		return s.afterFailure(t, *mismatched(body.GetSha256()), now, random)
	}
	d := decision{done: true}
	if t.interval() > 0 {
		at := s.Refresh.After(now, t.want.GetUrl(), t.interval())
		d = s.refresh(t, body, at, now)
		d.timer.FreshUntil = timestamppb.New(at)
	}
	switch {
	case body.GetSha256() != t.due.GetCached().GetSha256():
		d.outcome = outcomeContent
		d.result = t.result(now, &v1.Result{Outcome: &v1.Result_Content{Content: &v1.Content{
			Body: got.Body, Sha256: got.SHA256, Rules: rule.SetOf(t.want).Hash(), Credential: got.Credential,
		}}})
	case t.reported() != failure.Unspecified:
		d.outcome = outcomeRecovered
		d.result = t.result(now,
			&v1.Result{Outcome: &v1.Result_Unmodified{Unmodified: &v1.Unmodified{Sha256: body.GetSha256()}}})
	default:
		d.outcome = outcomeUnmodified
	}
	return d
}

// refresh sets the timer of a refresh of a key that has a body.
func (s *Schedule) refresh(t *trigger, body *v1.Cached, at, now time.Time) decision {
	due := t.nextDue(v1.Cause_CAUSE_REFRESH)
	due.Attempts, due.FirstFailedAt, due.ReportedAt, due.ReplayOf, due.GaveUp = 0, nil, nil, 0, false
	// If another fetcher may have worked on the key meanwhile, the writer may drop the result. So the
	// timer keeps the former digest, and the refresh publishes the body again.
	if !t.overtaken(now) {
		due.Cached, due.Reported, due.Withheld, due.StatusCode = body, failure.Unspecified, false, 0
		due.Detail = failure.NoDetail
	}
	return decision{timer: due, at: at}
}

// park sets a timer without an attempt.
func park(t *trigger, p parking, now time.Time, random float64) decision {
	due := t.nextDue(v1.Cause_CAUSE_PARKED)
	d := decision{outcome: outcomeParked, parking: p, timer: due, wait: p.Pause}
	if p.queued {
		since := t.due.GetWaitingSince()
		d.wait = throttle.Lease(since == nil, random)
		if p.Pause > d.wait { // too long for a lease
			d.parking.queued, d.wait = false, p.Pause+d.wait/10
		}
		if since == nil {
			since = timestamppb.New(now)
		}
		due.WaitingSince, due.Unended, due.WaitsFor = since, t.due.GetUnended(), t.due.GetWaitsFor()
	}
	if p.For == v1.WaitsFor_WAITS_FOR_UNSPECIFIED {
		d.outcome = outcomeQueued
	} else {
		due.WaitsFor = p.For
	}
	d.at = now.Add(d.wait)
	return d
}

const (
	// reportAfter is the attempt after which a failure is published. Most short failures are over by then.
	reportAfter = 3
	// withholdFor is the maximum pause before an attempt for which a failure is withheld.
	withholdFor = time.Minute
	// repeatAfter is how long a lasting failure is not published again, unless a person requests a fetch.
	repeatAfter = 30 * time.Minute
)

// afterFailure schedules a retry, or gives up until the next refresh or recheck and leaves a dead letter.
func (s *Schedule) afterFailure(t *trigger, f fetchFailure, now time.Time, random float64) decision {
	f.RetryAfter = min(f.RetryAfter, s.MaxRetryAfter)
	attempts, interval, cause := t.due.GetAttempts()+1, time.Duration(0), v1.Cause_CAUSE_RETRY
	givesUp := !failure.Retries(f.Failure(), attempts, s.MaxAttempts)
	d := decision{outcome: outcomeRetry, failure: &f, at: now.Add(s.Retry.Delay(attempts, f.RetryAfter, random))}
	asked := now.Add(f.RetryAfter)
	paused := f.RetryAfter > 0
	if givesUp {
		d.outcome, cause, interval = outcomeGaveUp, v1.Cause_CAUSE_RECHECK, s.Recheck
		d.at = now.Add(jittered(s.Recheck, random))
		if t.interval() > 0 {
			cause, interval, d.at = v1.Cause_CAUSE_REFRESH, t.interval(), s.Refresh.After(now, t.want.GetUrl(), t.interval())
		}
		paused = asked.After(d.at)
		if paused {
			d.at = asked
		}
	}
	d.wait = d.at.Sub(now)
	known, again := f.Class == t.reported(), t.isRepeated(f, now)
	// A round that starts with its final class follows one that was given up for the same reason, so nothing has changed.
	publish := givesUp && (!known || attempts > 1 || again) ||
		!givesUp && !known && (attempts == reportAfter || d.wait > withholdFor)

	d.timer = t.dueAfterFailure(f, publish, cause, now)
	d.timer.Attempts = attempts
	report := t.failureReport(f, d.at, now)
	report.GaveUp, report.Again = givesUp, again
	if paused {
		d.timer.WaitsFor, report.WaitsFor = v1.WaitsFor_WAITS_FOR_PAUSE, v1.WaitsFor_WAITS_FOR_PAUSE
	}
	if givesUp {
		d.timer.Attempts, d.timer.ReplayOf, d.timer.GaveUp = 0, 0, true
		report.Interval = durationpb.New(interval)
		d.deadLetter = &v1.DeadLetter{
			Want: slim(t.want), Failure: report, Sequence: t.sequence, LastFailedAt: timestamppb.New(now),
			Snippet: f.Snippet, ReplayOf: t.due.GetReplayOf(),
		}
	}
	if publish {
		d.result = t.result(now, &v1.Result{Outcome: &v1.Result_Failure{Failure: report}})
	}
	return d
}

// isRepeated reports whether to publish a known failure again: a person requested the fetch, other
// credentials were sent, the last report is old, or the key has become stale since.
func (t *trigger) isRepeated(f fetchFailure, now time.Time) bool {
	switch {
	case t.want.GetCause() == v1.Cause_CAUSE_NOW && t.due.GetReportedAt() == nil, t.due.GetReplayOf() > 0:
		return true
	case f.Class == t.reported() && (f.Detail == failure.NoCredential) != (t.due.GetDetail() == failure.NoCredential):
		return true // a credential was added or removed
	case f.Class != t.reported() || t.due.GetReportedAt() == nil:
		return false
	}
	since, at := t.failingSince(now), t.due.GetReportedAt().AsTime()
	return now.Sub(at) >= repeatAfter ||
		failure.FailsForLong(since, t.interval(), now) && !failure.FailsForLong(since, t.interval(), at)
}

// nextDue returns the timer's payload.
func (t *trigger) nextDue(cause v1.Cause) *v1.Due {
	due := proto.CloneOf(t.due)
	due.Want, due.WantSequence, due.Cause = slim(t.want), t.wantSequence, cause
	due.WaitsFor, due.WaitingSince, due.Unended, due.Settings = v1.WaitsFor_WAITS_FOR_UNSPECIFIED, nil, 0, ""
	return due
}

// dueAfterFailure returns the timer's payload after a failure.
func (t *trigger) dueAfterFailure(f fetchFailure, published bool, cause v1.Cause, now time.Time) *v1.Due {
	due := t.nextDue(cause)
	due.FirstFailedAt, due.Detail, due.Settings = timestamppb.New(t.failingSince(now)), f.Detail, f.Settings
	forgetValidators(due.GetCached())
	if t.overtaken(now) {
		return due
	}
	if published {
		due.ReportedAt = timestamppb.New(now)
	}
	if published || t.reported() == f.Class || t.reported() == failure.Unspecified {
		due.Reported, due.StatusCode = f.Class, int32(f.StatusCode)
		due.Withheld = !published && t.reported() != f.Class
	}
	return due
}

// failureReport returns a failure as the writer and dead letters get it.
func (t *trigger) failureReport(f fetchFailure, next, now time.Time) *v1.Failure {
	report := f.Failure()
	report.Host, report.Attempts, report.Rule = weburl.HostOf(t.want.GetUrl()), t.due.GetAttempts()+1, f.rule
	report.FirstFailedAt = timestamppb.New(t.failingSince(now))
	// The watcher publishes an unsigned want again before that.
	if f.Detail != failure.DeniedCredentials {
		report.NextAt = timestamppb.New(next)
	}
	return report
}

// result sets the fields that all results have.
func (t *trigger) result(now time.Time, r *v1.Result) *v1.Result {
	r.Want, r.Sequence, r.Cause = t.want, t.sequence, t.cause
	if t.readFirst {
		r.Want = withoutStatus(t.want)
	}
	r.ObservedAt, r.Answered = timestamppb.New(now), t.due.GetCached() != nil
	return r
}

// withoutStatus returns a copy of a want for which the writer must read the object first. The want itself stays as the
// watcher signed it, with its status.
func withoutStatus(w *v1.Want) *v1.Want {
	w = proto.CloneOf(w)
	w.Status, w.ReadFirst = "", true
	return w
}

// maxConditionalAge is the maximum time between two unconditional GETs of a key. It needs no trust in the
// validators of a server.
const maxConditionalAge = 24 * time.Hour

// bodyAfter returns the body of a key after a response.
func bodyAfter(t *trigger, r get.Response, now time.Time, random float64) *v1.Cached {
	if r.NotModified {
		return t.due.GetCached()
	}
	body := &v1.Cached{
		Sha256: r.SHA256, Size: int64(len(r.Body)), Etag: r.ETag, LastModified: r.LastModified, ValidatedBy: r.From,
	}
	if r.Conditional() {
		// The last conditional GET is at least an interval with its jitter before the end of maxConditionalAge.
		// Random numbers spread the unconditional ones over time.
		until := maxConditionalAge - time.Duration(random*float64(maxConditionalAge/4)) - t.interval() - t.interval()/4
		body.ConditionalUntil = timestamppb.New(now.Add(until))
	}
	return body
}

// validators returns the validators of a body, unless the next GET has to be unconditional.
func validators(body *v1.Cached, now time.Time) get.Validators {
	v := get.Validators{From: body.GetValidatedBy(), ETag: body.GetEtag(), LastModified: body.GetLastModified()}
	left := body.GetConditionalUntil().AsTime().Sub(now)
	if v.Conditional() && (left < 0 || left > maxConditionalAge) { // or the clock was set back
		return get.Validators{}
	}
	return v
}

// forgetValidators makes the next GET of a body unconditional, because a person requested it or the
// last one failed, perhaps due to its conditions.
func forgetValidators(body *v1.Cached) {
	if body.GetEtag() != "" || body.GetLastModified() != "" {
		body.Etag, body.LastModified, body.ValidatedBy, body.ConditionalUntil = "", "", "", nil
	}
}
