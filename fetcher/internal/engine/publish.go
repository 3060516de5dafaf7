package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kv8s/curl-me-that/fetcher/internal/schedule"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

const (
	// publishTimeout bounds one try to reach the broker.
	publishTimeout = 5 * time.Second
	// publishFirst and publishMax bound the pauses between tries.
	publishFirst = 200 * time.Millisecond
	publishMax   = 5 * time.Second
	// codeTooLarge is the answer of JetStream to a message above the limit of
	// its stream.
	codeTooLarge jetstream.ErrorCode = 10054
)

var (
	// errRefused tells that the broker will never take a message.
	errRefused = errors.New("broker refuses the message")
	// errDraining tells that the process ends before the broker answered.
	errDraining = errors.New("process is draining")
)

// setTimer sets the timer of a key. The error wraps pipeline.ErrSuperseded,
// errRefused or errDraining.
func (e *Engine) setTimer(ctx context.Context, due *v1.Due, at time.Time) error {
	return e.persist(ctx, pipeline.Requests, func(ctx context.Context) error {
		return e.deps.Client.PublishTimer(ctx, due, at)
	})
}

// hand gives an outcome to the writer, with the errors of persist.
func (e *Engine) hand(ctx context.Context, result *v1.Result) error {
	return e.persist(ctx, pipeline.Results, func(ctx context.Context) error {
		return e.deps.Client.PublishResult(ctx, result)
	})
}

// persist calls a stream until it answers: what was fetched is kept, and the
// message with it, until it is in safe hands. It gives up when the process
// drains, and returns answers that will not change.
func (e *Engine) persist(ctx context.Context, stream string, call func(context.Context) error) error {
	for pause := publishFirst; ; pause = min(2*pause, publishMax) {
		err := try(ctx, call)
		switch {
		case err == nil || errors.Is(err, pipeline.ErrSuperseded):
			e.pressure.relieve(stream, e.deps.Now())
			return err
		case refused(err):
			return fmt.Errorf("%w: %w", errRefused, err)
		}
		e.pressure.feel(stream, err, e.deps.Now())
		e.deps.Metrics.blocked(err)
		if err := e.pause(pause); err != nil {
			return err
		}
	}
}

func try(ctx context.Context, call func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	return call(ctx)
}

func (e *Engine) pause(d time.Duration) error {
	timer := time.NewTimer(schedule.Around(d, e.deps.Random()))
	defer timer.Stop()
	select {
	case <-e.deps.Draining:
		return errDraining
	case <-timer.C:
		return nil
	}
}

func refused(err error) bool {
	var api *jetstream.APIError
	return errors.Is(err, nats.ErrMaxPayload) || errors.As(err, &api) && api.ErrorCode == codeTooLarge
}

// unpublished is the end of a message that could not be brought to its own.
func (e *Engine) unpublished(ctx context.Context, t *trigger, err error) end {
	switch {
	case errors.Is(err, pipeline.ErrSuperseded):
		return end{outcome: superseded}
	case errors.Is(err, errRefused):
		return e.bury(ctx, t, err)
	}
	return end{outcome: postponed, wait: lag}
}
