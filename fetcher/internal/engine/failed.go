package engine

import (
	"context"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/kv8s/curl-me-that/fetcher/internal/schedule"
	"github.com/kv8s/curl-me-that/proto/condition"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

// failed decides between a retry and giving up.
func (e *Engine) failed(ctx context.Context, t *trigger, f failure) ending {
	f.RetryAfter = min(f.RetryAfter, e.cfg.MaxRetryAfter)
	if pipeline.Retries(f.Failure(), t.past.GetAttempts()+1, e.cfg.MaxAttempts) {
		return e.retry(ctx, t, f)
	}
	return e.giveUp(ctx, t, f)
}

const (
	// reportAfter is the attempt after which a failure is published. Most short failures are over
	// by then.
	reportAfter = 3
	// withholdFor is the maximum pause before an attempt for which a failure is withheld.
	withholdFor = time.Minute
)

// retry sets the timer of the next attempt, and publishes a lasting failure if its class is new.
func (e *Engine) retry(ctx context.Context, t *trigger, f failure) ending {
	attempts := t.past.GetAttempts() + 1
	wait := e.cfg.Retry.Delay(attempts, f.RetryAfter, e.deps.Random())
	a := followUp{
		failure: f, at: e.deps.Clock.Now(),
		publish: f.Class != t.reported() && (attempts == reportAfter || wait > withholdFor),
	}
	a.next, a.again = a.at.Add(wait), t.isRepeated(f, a.at)
	due := e.dueAfter(t, a, v1.Cause_CAUSE_RETRY)
	due.Attempts = attempts
	if f.RetryAfter > 0 {
		a.waitsFor, due.WaitsFor = v1.WaitsFor_WAITS_FOR_PAUSE, v1.WaitsFor_WAITS_FOR_PAUSE
	}
	err := t.inOrder(
		func() error { _, err := e.setTimer(t.sameTrace(ctx), due, a.next); return err },
		func() error { return e.publishFailure(ctx, t, a) })
	if err != nil {
		return afterPublishError(err)
	}
	e.deps.Metrics.retries.Inc()
	return ending{outcome: retry, failure: f, wait: wait}
}

// followUp is the consequence of a failed attempt.
type followUp struct {
	failure
	// at is the time of the failure, and next the time of the next try.
	at, next time.Time
	// waitsFor is the reason for the time of the next try.
	waitsFor v1.WaitsFor
	// gaveUp means that this round has no further attempt. The next round starts after the
	// interval.
	gaveUp   bool
	interval time.Duration
	// publish means that the writer gets the failure, and again that it has got the same one before.
	publish, again bool
}

// deadLetters is the name of a budget.
const deadLetters = "dead_letters"

// giveUp publishes a dead letter and the failure, and sets the timer of the next refresh or
// recheck.
func (e *Engine) giveUp(ctx context.Context, t *trigger, f failure) ending {
	a := e.lastOfRound(t, f, e.deps.Clock.Now())
	dropped := false
	err := t.inOrder(
		func() error { return e.scheduleNextRound(ctx, t, a) },
		func() error {
			dropped = e.keepDeadLetter(ctx, t, a)
			return e.publishFailure(ctx, t, a)
		})
	if err != nil {
		return afterPublishError(err)
	}
	return ending{outcome: gaveUp, failure: f, wait: a.next.Sub(a.at), dropped: dropped}
}

// keepDeadLetter publishes the dead letter of a trigger within the budget, or reports that it was
// dropped.
func (e *Engine) keepDeadLetter(ctx context.Context, t *trigger, a followUp) (dropped bool) {
	if short := e.deadLetters.Take(t.key.Namespace, 1); short != nil {
		e.logShortage(t, short, deadLetters,
			"the namespace exceeded its budget of dead letters, its failures cannot be replayed")
		dropped = true
	}
	if dropped = dropped || !e.publishDeadLetter(ctx, t, a); dropped {
		e.deps.Metrics.deadLettersDropped.Inc()
	}
	return dropped
}

// scheduleNextRound sets the timer of the next refresh or recheck.
func (e *Engine) scheduleNextRound(ctx context.Context, t *trigger, a followUp) error {
	cause := v1.Cause_CAUSE_RECHECK
	if t.want.GetRefresh().AsDuration() > 0 {
		cause = v1.Cause_CAUSE_REFRESH
	}
	due := e.dueAfter(t, a, cause)
	due.Attempts, due.ReplayOf, due.WaitsFor, due.GaveUp = 0, 0, a.waitsFor, true
	_, err := e.setTimer(newTrace(ctx), due, a.next)
	return err
}

// repeatAfter is how long a lasting failure is not published again, unless a person requests a
// fetch.
const repeatAfter = 30 * time.Minute

// lastOfRound returns the consequence of the last attempt of a round.
func (e *Engine) lastOfRound(t *trigger, f failure, now time.Time) followUp {
	a := followUp{failure: f, at: now, gaveUp: true, interval: e.cfg.Recheck}
	a.next = now.Add(schedule.Jitter(e.cfg.Recheck, e.deps.Random()))
	if interval := t.want.GetRefresh().AsDuration(); interval > 0 {
		a.interval, a.next = interval, e.cfg.Refresh.After(now, t.want.GetUrl(), interval)
	}
	if asked := now.Add(f.RetryAfter); asked.After(a.next) {
		a.next, a.waitsFor = asked, v1.WaitsFor_WAITS_FOR_PAUSE
	}
	// A round that starts with its final class follows one that was given up for the same reason,
	// so nothing has changed.
	changed := f.Class != t.reported() || t.past.GetAttempts() > 0
	a.again = t.isRepeated(f, now)
	a.publish = changed || a.again
	return a
}

const noCredential = v1.FailureDetail_FAILURE_DETAIL_NO_CREDENTIAL

// isRepeated reports whether to publish a known failure again: a person requested the fetch, other
// credentials were sent, the last report is old, or the key has become stale since.
func (t *trigger) isRepeated(f failure, now time.Time) bool {
	switch {
	case t.want.GetCause() == v1.Cause_CAUSE_NOW && t.past.GetReportedAt() == nil, t.past.GetReplayOf() > 0:
		return true
	case f.Class == t.reported() && (f.Detail == noCredential) != (t.past.GetDetail() == noCredential):
		return true // a credential was added or removed
	case f.Class != t.reported() || t.past.GetReportedAt() == nil:
		return false
	}
	since, interval := t.failingSince(now), t.want.GetRefresh().AsDuration()
	at := t.past.GetReportedAt().AsTime()
	return now.Sub(at) >= repeatAfter ||
		condition.FailsForLong(since, interval, now) && !condition.FailsForLong(since, interval, at)
}

// dueAfter returns the timer's payload after a failure.
func (e *Engine) dueAfter(t *trigger, a followUp, cause v1.Cause) *v1.Due {
	due := t.due(cause)
	due.FirstFailedAt = timestamppb.New(t.failingSince(a.at))
	due.Detail = a.Detail
	forgetValidators(due.GetCached())
	if t.overtaken(a.at) {
		return due
	}
	if a.publish {
		due.ReportedAt = timestamppb.New(a.at)
	}
	if a.publish || t.reported() == a.Class || t.reported() == v1.FailureClass_FAILURE_CLASS_UNSPECIFIED {
		due.Reported, due.StatusCode = a.Class, int32(a.StatusCode)
		due.Withheld = !a.publish && t.reported() != a.Class
	}
	return due
}

// failingSince returns the start of the failures without a success in between.
func (t *trigger) failingSince(now time.Time) time.Time {
	if !t.failing() {
		return now
	}
	return t.past.GetFirstFailedAt().AsTime()
}

// publishFailure publishes the failure for the writer, unless it is withheld or known.
func (e *Engine) publishFailure(ctx context.Context, t *trigger, a followUp) error {
	if !a.publish {
		return nil
	}
	result := e.complete(t, &v1.Result{Outcome: &v1.Result_Failure{Failure: t.describe(a)}})
	if !e.fit(result) {
		return errRefused
	}
	return e.publishResult(ctx, result)
}

func (t *trigger) describe(a followUp) *v1.Failure {
	f := a.Failure()
	f.Host, f.Attempts = pipeline.HostOf(t.want.GetUrl()), t.past.GetAttempts()+1
	f.FirstFailedAt = timestamppb.New(t.failingSince(a.at))
	f.GaveUp, f.Again, f.WaitsFor = a.gaveUp, a.again, a.waitsFor
	f.Rule = a.rule
	// The watcher publishes an unsigned want again before that.
	if a.Detail != v1.FailureDetail_FAILURE_DETAIL_DENIED_CREDENTIALS {
		f.NextAt = timestamppb.New(a.next)
	}
	if a.gaveUp {
		f.Interval = durationpb.New(a.interval)
	}
	return f
}
