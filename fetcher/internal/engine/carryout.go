package engine

import (
	"context"
	"errors"
	"strconv"
	"time"

	"go.opentelemetry.io/otel/trace"
	"google.golang.org/protobuf/proto"

	"github.com/kv8s/curl-me-that/proto/budget"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/failure"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

const (
	// headroom is the room for the headers of a result, in bytes.
	headroom = 1 << 10
	// deadLetterTimeout is the time limit of the only attempt to publish a dead letter. The history
	// of failures must not delay fetches.
	deadLetterTimeout = 2 * time.Second
	// deadLetterPause is how long dead letters are dropped after a failed attempt.
	deadLetterPause = 5 * time.Second
)

// carryOut carries out a decision and returns it, or another one if the want was replaced or the broker does not accept
// something.
//
// For a delivered message the timer comes first, because it fails if the want was replaced. If the
// process ends after it, the message is delivered again. For a claimed key the timer comes last,
// because only the claim, which the timer replaces, brings the key back.
func (e *Engine) carryOut(ctx context.Context, a *attempt, d decision) decision {
	isContent := d.result.GetContent() != nil
	if d.result != nil && !e.fit(d.result) && isContent {
		return e.conclude(ctx, a, failed(tooLarge()))
	}
	var timer uint64
	var err error
	if a.claim == nil {
		timer, err = e.setTimer(ctx, a, d)
	}
	if err == nil {
		d.dropped, err = e.publish(ctx, a, d)
	}
	if err == nil && a.claim != nil {
		timer, err = e.setTimer(ctx, a, d)
	}
	switch {
	case errors.Is(err, pipeline.ErrSuperseded):
		return decision{outcome: outcomeSuperseded}
	case errors.Is(err, errRejected) && isContent:
		return e.conclude(ctx, a, failed(tooLarge()))
	case errors.Is(err, errRejected):
		f := unhandled("broker rejects the outcome of the message", err)
		if a.claim != nil && d.outcome != outcomeGaveUp { // nothing else stores its dead letter
			return e.conclude(ctx, a, failed(f))
		}
		return decision{outcome: outcomeMalformed, failure: f}
	case err != nil:
		return decision{outcome: outcomePostponed}
	}
	if d.parking.queued {
		e.enqueue(ctx, a, d, timer)
	}
	return d
}

// setTimer sets the timer of a decision and returns its sequence. If the key needs none, it cancels the claim, or
// checks that the want was not replaced. The error wraps pipeline.ErrSuperseded, errRejected or errDraining.
func (e *Engine) setTimer(ctx context.Context, a *attempt, d decision) (sequence uint64, err error) {
	switch {
	case d.timer != nil:
		if d.timer.GetCause() == v1.Cause_CAUSE_REFRESH || d.timer.GetCause() == v1.Cause_CAUSE_RECHECK {
			ctx = trace.ContextWithSpanContext(ctx, trace.SpanContext{}) // or a trace would never end
		}
		err = e.untilAccepted(ctx, pipeline.Requests, func(ctx context.Context) (err error) {
			sequence, err = e.deps.Client.SetTimer(ctx, d.timer, d.at)
			return err
		})
	case d.done && a.claim != nil:
		err = e.untilAccepted(ctx, pipeline.Requests, func(ctx context.Context) error {
			return e.deps.Client.CancelTimer(ctx, a.key, a.wantSequence)
		})
	case d.done && !a.young(e.deps.Clock.Now()):
		err = e.checkWant(ctx, &a.trigger)
	}
	return sequence, err
}

// publish publishes the dead letter of a decision, unless it has to be dropped, and the result.
func (e *Engine) publish(ctx context.Context, a *attempt, d decision) (dropped bool, err error) {
	if d.deadLetter != nil && !e.publishDeadLetter(ctx, a, d.deadLetter) {
		dropped = true
		e.deps.Metrics.deadLettersDropped.Inc()
	}
	if d.result == nil {
		return dropped, nil
	}
	e.resultBytes.Spend(a.key.Namespace, int64(len(d.result.GetContent().GetBody())))
	return dropped, e.untilAccepted(ctx, pipeline.Results, func(ctx context.Context) error {
		if err := e.renew(ctx, a); err != nil {
			return err
		}
		return e.deps.Client.PublishResult(ctx, d.result)
	})
}

// publishDeadLetter reports whether the budget and the stream accept a dead letter.
func (e *Engine) publishDeadLetter(ctx context.Context, a *attempt, d *v1.DeadLetter) bool {
	if short := e.deadLetters.Take(a.key.Namespace, 1); short != nil {
		e.logShortage(&a.trigger, short, budget.DeadLetters,
			"the namespace exceeded its budget of dead letters, its failures cannot be replayed")
		return false
	}
	if e.backpressure.rejectedSince(pipeline.DeadLetters, e.deps.Local().Add(-deadLetterPause)) {
		return false
	}
	d.Traceparent = pipeline.Traceparent(a.span.SpanContext())
	id := strconv.FormatInt(a.want.GetEpoch(), 10) + "." + strconv.FormatUint(a.sequence, 10) + ".dead"
	ctx, cancel := context.WithTimeout(ctx, deadLetterTimeout)
	defer cancel()
	if err := e.deps.Client.PublishDeadLetter(ctx, a.key, d, id); err != nil {
		e.backpressure.rejected(pipeline.DeadLetters, err, e.deps.Local())
		e.deps.Metrics.countPublishFailure(err)
		return false
	}
	e.backpressure.accepted(pipeline.DeadLetters, e.deps.Local())
	e.deps.Metrics.deadLetters.WithLabelValues(failure.Reason(d.GetFailure().GetClass())).Inc()
	return true
}

// fit reports whether the broker accepts a result. A large body replaces the status annotation,
// which only saves the writer a read.
func (e *Engine) fit(r *v1.Result) bool {
	limit := int(e.deps.Client.JetStream().Conn().MaxPayload()) - headroom
	if proto.Size(r) > limit && r.GetWant().GetStatus() != "" {
		r.Want = withoutStatus(r.GetWant())
	}
	return proto.Size(r) <= limit
}

// checkWant returns ErrSuperseded if the want of a trigger has been replaced. Only a later message proves that, because
// a replica may lag. A timer fails then by itself. A result without one would reach the writer, which reads and
// perhaps patches the object for a body that nobody asks for any more.
func (e *Engine) checkWant(ctx context.Context, t *trigger) error {
	_, sequence, err := e.lastWant(ctx, t.key)
	switch {
	case errors.Is(err, pipeline.ErrNoMessage):
		return nil
	case err != nil && !errors.Is(err, pipeline.ErrMalformed):
		return err
	case sequence > t.wantSequence:
		return pipeline.ErrSuperseded
	}
	return nil
}

func (e *Engine) lastWant(ctx context.Context, key pipeline.Key) (want *v1.Want, sequence uint64, err error) {
	err = e.untilAccepted(ctx, pipeline.Requests, func(ctx context.Context) (err error) {
		want, sequence, err = e.deps.Client.LastWant(ctx, key)
		return err
	})
	return want, sequence, err
}
