package engine

import (
	"context"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/kv8s/curl-me-that/fetcher/internal/schedule"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

// failed decides what becomes of a key whose attempt has failed.
func (e *Engine) failed(ctx context.Context, t *trigger, f failure) result {
	f.RetryAfter = min(f.RetryAfter, e.cfg.MaxRetryAfter)
	if pipeline.Decide(f.Class, f.StatusCode, t.attempts+1, e.cfg.MaxAttempts) == pipeline.NextRetry {
		return e.retry(ctx, t, f)
	}
	return e.giveUp(ctx, t, f)
}

// retry sets the timer of the next attempt, and publishes the failure if its
// class has changed.
func (e *Engine) retry(ctx context.Context, t *trigger, f failure) result {
	now := e.deps.Clock.Now()
	due := e.dueAfter(t, f, v1.Cause_CAUSE_RETRY, now)
	due.Attempts = t.attempts + 1
	wait := e.cfg.Retry.Delay(due.GetAttempts(), f.RetryAfter, e.deps.Random())
	if err := e.setTimer(t.sameTrace(ctx), due, now.Add(wait)); err != nil {
		return afterPublishError(err)
	}
	if f.Class != t.reported {
		if err := e.publishFailure(ctx, t, f, now, false); err != nil {
			return afterPublishError(err)
		}
	}
	e.deps.Metrics.retries.Inc()
	return result{outcome: retry, failure: f, wait: wait}
}

// giveUp publishes a dead letter, if the namespace is within its budget of them,
// publishes the failure, and sets the timer of the next refresh, or of a slow
// recheck.
func (e *Engine) giveUp(ctx context.Context, t *trigger, f failure) result {
	now := e.deps.Clock.Now()
	cause, at := v1.Cause_CAUSE_RECHECK, now.Add(schedule.Around(e.cfg.Recheck, e.deps.Random()))
	if interval := t.want.GetRefresh().AsDuration(); interval > 0 {
		cause, at = v1.Cause_CAUSE_REFRESH, e.cfg.Refresh.Next(now, t.want.GetUrl(), interval, 0)
	}
	if asked := now.Add(f.RetryAfter); asked.After(at) {
		at = asked
	}
	due := e.dueAfter(t, f, cause, now)
	due.Attempts, due.ReplayOf = 0, 0
	if err := e.setTimer(newTrace(ctx), due, at); err != nil {
		return afterPublishError(err)
	}
	short := e.deadLetters.Take(t.key.Namespace, 1)
	if short != nil {
		e.deps.Metrics.deadLettersDropped.Inc()
		e.logShortage(t, short, "dead_letters", "the namespace has used up its budget of dead letters; failures are published, and cannot be replayed")
	} else if err := e.publishDeadLetter(ctx, t, f, now); err != nil {
		return afterPublishError(err)
	}
	// A round that begins with the class it ends with follows one that was
	// given up for the same: nothing has changed.
	if f.Class != t.reported || t.attempts > 0 {
		if err := e.publishFailure(ctx, t, f, now, true); err != nil {
			return afterPublishError(err)
		}
	}
	return result{outcome: gaveUp, failure: f, wait: at.Sub(now), dropped: short != nil}
}

// dueAfter returns a timer's payload after a failure.
func (e *Engine) dueAfter(t *trigger, f failure, cause v1.Cause, now time.Time) *v1.Due {
	due := t.due(cause)
	due.FirstFailedAt = timestamppb.New(t.failingSince(now))
	if !t.overtaken(now) {
		due.Reported = f.Class
	}
	return due
}

// failingSince is when the unbroken row of failures began.
func (t *trigger) failingSince(now time.Time) time.Time {
	if t.firstFailed.IsZero() {
		return now
	}
	return t.firstFailed
}

// publishFailure hands a change of the failure state to the writer.
func (e *Engine) publishFailure(ctx context.Context, t *trigger, f failure, now time.Time, final bool) error {
	result := e.result(t, &v1.Result{Outcome: &v1.Result_Failure{Failure: e.describe(t, f, now, final)}})
	if !e.fit(result) {
		return errRefused
	}
	return e.publishResult(ctx, result)
}

func (e *Engine) describe(t *trigger, f failure, now time.Time, final bool) *v1.Failure {
	return &v1.Failure{
		Class:         f.Class,
		Host:          pipeline.HostOf(t.want.GetUrl()),
		StatusCode:    int32(f.StatusCode),
		Attempts:      t.attempts + 1,
		FirstFailedAt: timestamppb.New(t.failingSince(now)),
		GaveUp:        final,
	}
}
