package engine

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/rs/zerolog"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/protobuf/proto"

	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/failure"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

const (
	// headroom is the room for the headers of a result, in bytes.
	headroom = 1 << 10
	// publishTimeout is the time limit of one attempt to reach the broker.
	publishTimeout = 5 * time.Second
	// publishFirst and publishMax are the minimum and maximum pause between attempts.
	publishFirst = 200 * time.Millisecond
	publishMax   = 5 * time.Second
	// deadLetterTimeout is the time limit of the only attempt to publish a dead letter. The history
	// of failures must not delay fetches.
	deadLetterTimeout = 2 * time.Second
	// deadLetterPause is how long dead letters are dropped after a failed attempt.
	deadLetterPause = 5 * time.Second
)

var (
	// errRejected means that the broker will never accept the outcome.
	errRejected = errors.New("broker rejects the message")
	// errDraining means that the process drained before the broker responded.
	errDraining = errors.New("process is draining")
)

// react decides how to react to the end of an attempt, and does it.
func (e *Engine) react(ctx context.Context, a *attempt, end attemptEnd) reaction {
	return e.carryOut(ctx, a, e.cfg.decide(&a.trigger, end, e.deps.Clock.Now(), e.deps.Random()))
}

// carryOut carries out a reaction and returns it with its outcome, which is another one if the want was
// replaced or the broker does not accept something.
//
// For a delivered message the timer comes first, because it fails if the want was replaced. If the
// process ends after it, the message is delivered again. For a claimed key the timer comes last,
// because only the claim, which the timer replaces, brings the key back.
func (e *Engine) carryOut(ctx context.Context, a *attempt, r reaction) reaction {
	isContent := r.result.GetContent() != nil
	if r.result != nil && !e.fit(r.result) && isContent {
		return e.react(ctx, a, failed(tooLarge()))
	}
	var timer uint64
	first := func() (err error) { timer, err = e.setTimer(ctx, a, r); return err }
	second := func() (err error) { r.dropped, err = e.publish(ctx, a, r); return err }
	if a.claim != nil {
		first, second = second, first
	}
	err := first()
	if err == nil {
		err = second()
	}
	switch {
	case errors.Is(err, pipeline.ErrSuperseded):
		return reaction{outcome: superseded}
	case errors.Is(err, errRejected) && isContent:
		return e.react(ctx, a, failed(tooLarge()))
	case errors.Is(err, errRejected):
		f := unhandled("broker rejects the outcome of the message", err)
		if a.claim != nil && r.outcome != gaveUp { // nothing else stores its dead letter
			return e.react(ctx, a, failed(f))
		}
		return reaction{outcome: malformed, failure: f}
	case err != nil:
		return reaction{outcome: postponed}
	}
	if r.parking.queued {
		e.enqueue(ctx, a, r, timer)
	}
	return r
}

// setTimer sets the timer of a reaction and returns its sequence. If the key needs none, it cancels the
// claim, or checks that the want was not replaced. The error wraps pipeline.ErrSuperseded, errRejected
// or errDraining.
func (e *Engine) setTimer(ctx context.Context, a *attempt, r reaction) (sequence uint64, err error) {
	switch {
	case r.timer != nil:
		if r.timer.GetCause() == v1.Cause_CAUSE_REFRESH || r.timer.GetCause() == v1.Cause_CAUSE_RECHECK {
			ctx = trace.ContextWithSpanContext(ctx, trace.SpanContext{}) // or a trace would never end
		}
		err = e.untilAccepted(ctx, pipeline.Requests, func(ctx context.Context) (err error) {
			sequence, err = e.deps.Client.SetTimer(ctx, r.timer, r.at)
			return err
		})
	case r.done && a.claim != nil:
		err = e.untilAccepted(ctx, pipeline.Requests, func(ctx context.Context) error {
			return e.deps.Client.CancelTimer(ctx, a.key, a.wantSequence)
		})
	case r.done:
		err = e.checkWant(ctx, &a.trigger)
	}
	return sequence, err
}

// publish publishes the dead letter of a reaction, unless it has to be dropped, and the result.
func (e *Engine) publish(ctx context.Context, a *attempt, r reaction) (dropped bool, err error) {
	if r.deadLetter != nil && !e.publishDeadLetter(ctx, a, r.deadLetter) {
		dropped = true
		e.deps.Metrics.deadLettersDropped.Inc()
	}
	if r.result == nil {
		return dropped, nil
	}
	e.resultBytes.Spend(a.key.Namespace, int64(len(r.result.GetContent().GetBody())))
	return dropped, e.untilAccepted(ctx, pipeline.Results, func(ctx context.Context) error {
		if err := e.renew(ctx, a); err != nil {
			return err
		}
		return e.deps.Client.PublishResult(ctx, r.result)
	})
}

// deadLetterBudget is the name of a budget.
const deadLetterBudget = "dead_letters"

// publishDeadLetter reports whether the budget and the stream accept a dead letter.
func (e *Engine) publishDeadLetter(ctx context.Context, a *attempt, d *v1.DeadLetter) bool {
	if short := e.deadLetters.Take(a.key.Namespace, 1); short != nil {
		e.logShortage(&a.trigger, short, deadLetterBudget,
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

// untilAccepted repeats a call until the broker has accepted it, so that a body is not fetched twice.
// It stops while the process drains, and at errors that a retry cannot fix.
func (e *Engine) untilAccepted(ctx context.Context, stream string, call func(context.Context) error) error {
	for pause := publishFirst; ; pause = min(2*pause, publishMax) {
		limited, cancel := context.WithTimeout(ctx, publishTimeout)
		err := call(limited)
		cancel()
		switch {
		case err == nil || isFinal(err):
			e.backpressure.accepted(stream, e.deps.Local())
			return err
		case errors.Is(err, pipeline.ErrTooLarge):
			return fmt.Errorf("%w: %w", errRejected, err)
		}
		e.backpressure.rejected(stream, err, e.deps.Local())
		e.deps.Metrics.countPublishFailure(err)
		if err := e.pause(pause); err != nil {
			return err
		}
	}
}

// isFinal reports whether an error is a response of the broker that a retry does not change.
func isFinal(err error) bool {
	return errors.Is(err, pipeline.ErrSuperseded) || errors.Is(err, pipeline.ErrNoMessage) ||
		errors.Is(err, pipeline.ErrMalformed)
}

func (e *Engine) pause(d time.Duration) error {
	timer := time.NewTimer(jittered(d, e.deps.Random()))
	defer timer.Stop()
	select {
	case <-e.deps.Draining:
		return errDraining
	case <-timer.C:
		return nil
	}
}

// quietFor is how long a stream must accept all messages before it counts as available again. A full
// stream sometimes has room for one.
const quietFor = 10 * time.Second

// backpressure logs once when a stream stops accepting messages, and once when it accepts them
// again.
type backpressure struct {
	log zerolog.Logger

	mu sync.Mutex
	// rejectedAt is the time of the last rejection by stream.
	rejectedAt map[string]time.Time
}

func newBackpressure(log zerolog.Logger) *backpressure {
	return &backpressure{log: log, rejectedAt: map[string]time.Time{}}
}

func (b *backpressure) rejected(stream string, err error, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	_, known := b.rejectedAt[stream]
	b.rejectedAt[stream] = now
	if known {
		return
	}
	text := "the broker does not respond, keeping work in flight until it does"
	switch {
	case stream == pipeline.DeadLetters:
		text = "dead letters cannot be stored and are dropped, so these failures cannot be replayed"
	case errors.Is(err, pipeline.ErrFull):
		text = "the stream is full, keeping work in flight until there is room"
	case errors.Is(err, pipeline.ErrInFlight):
		text = "the broker has another publish in flight, keeping work in flight until that has ended"
	}
	b.log.Warn().Err(err).Str("stream", stream).Msg(text)
}

// rejectedSince reports whether a stream has rejected a message since a time.
func (b *backpressure) rejectedSince(stream string, since time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	at, ok := b.rejectedAt[stream]
	return ok && at.After(since)
}

func (b *backpressure) accepted(stream string, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if at, ok := b.rejectedAt[stream]; ok && now.Sub(at) >= quietFor {
		delete(b.rejectedAt, stream)
		b.log.Info().Str("stream", stream).Msg("the broker takes messages again")
	}
}
