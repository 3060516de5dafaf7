package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kv8s/curl-me-that/fetcher/internal/schedule"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

const (
	// publishTimeout is the time limit of one attempt to reach the broker.
	publishTimeout = 5 * time.Second
	// publishFirst and publishMax are the minimum and maximum pause between attempts.
	publishFirst = 200 * time.Millisecond
	publishMax   = 5 * time.Second
)

var (
	// errRefused means that the broker will never accept the outcome.
	errRefused = errors.New("broker refuses the message")
	// errDraining means that the process drained before the broker responded.
	errDraining = errors.New("process is draining")
)

// setTimer sets the timer of a key and returns its sequence. The error wraps
// pipeline.ErrSuperseded, errRefused or errDraining.
func (e *Engine) setTimer(ctx context.Context, due *v1.Due, at time.Time) (sequence uint64, err error) {
	err = e.untilAccepted(ctx, pipeline.Requests, func(ctx context.Context) (err error) {
		sequence, err = e.deps.Client.SetTimer(ctx, due, at)
		return err
	})
	return sequence, err
}

// publishResult publishes an outcome for the writer, with the errors of setTimer.
func (e *Engine) publishResult(ctx context.Context, result *v1.Result) error {
	return e.untilAccepted(ctx, pipeline.Results, func(ctx context.Context) error {
		return e.deps.Client.PublishResult(ctx, result)
	})
}

// untilAccepted repeats a call until the broker has accepted it, so that a body is not fetched twice.
// It stops while the process drains, and at errors that a retry cannot fix.
func (e *Engine) untilAccepted(ctx context.Context, stream string, call func(context.Context) error) error {
	for pause := publishFirst; ; pause = min(2*pause, publishMax) {
		err := try(ctx, call)
		switch {
		case err == nil || isFinal(err):
			e.backpressure.accepted(stream, e.deps.Clock.Now())
			return err
		case errors.Is(err, pipeline.ErrTooLarge):
			return fmt.Errorf("%w: %w", errRefused, err)
		}
		e.backpressure.refused(stream, err, e.deps.Clock.Now())
		e.deps.Metrics.observePushback(err)
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

func try(ctx context.Context, call func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	return call(ctx)
}

func (e *Engine) pause(d time.Duration) error {
	timer := time.NewTimer(schedule.Jitter(d, e.deps.Random()))
	defer timer.Stop()
	select {
	case <-e.deps.Draining:
		return errDraining
	case <-timer.C:
		return nil
	}
}

// afterPublishError is the ending of a message whose outcome could not be published.
func afterPublishError(err error) ending {
	switch {
	case errors.Is(err, pipeline.ErrSuperseded):
		return ending{outcome: superseded}
	case errors.Is(err, errRefused):
		return ending{outcome: malformed, failure: unhandled("broker refuses the outcome of the message", err)}
	}
	return ending{outcome: postponed}
}
