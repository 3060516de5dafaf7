package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/rs/zerolog"

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
	// errRejected means that the broker will never accept the outcome.
	errRejected = errors.New("broker rejects the message")
	// errDraining means that the process drained before the broker responded.
	errDraining = errors.New("process is draining")
)

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

// backpressure logs once when a stream stops accepting messages, and once when it accepts them again.
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
