package replay

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	// retryFor is the maximum time for one request while NATS is unavailable. A server
	// restarts, a stream elects a leader and the client reconnects in less.
	retryFor = 2 * time.Minute
	// tryTimeout limits one try.
	tryTimeout = 5 * time.Second
)

// Retry repeats a request until NATS answers, or retryFor has passed. An acknowledgement
// may get lost, so do must be safe to repeat.
func Retry(ctx context.Context, do func(context.Context) error) error {
	began := time.Now()
	for pause := 100 * time.Millisecond; ; pause = min(2*pause, 2*time.Second) {
		limited, cancel := context.WithTimeout(ctx, tryTimeout)
		err := do(limited)
		cancel()
		if !unavailable(err) || ctx.Err() != nil || time.Since(began) > retryFor {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(pause):
		}
	}
}

// unavailable reports whether a server or the leader of a stream is unavailable. The
// streams did exist, so a missing one is still being recovered.
func unavailable(err error) bool {
	if api, ok := errors.AsType[*jetstream.APIError](err); ok {
		return api.Code == 503 || api.ErrorCode == jetstream.JSErrCodeStreamNotFound ||
			api.ErrorCode == jetstream.JSErrCodeConsumerNotFound
	}
	return slices.ContainsFunc([]error{
		context.DeadlineExceeded, nats.ErrTimeout, nats.ErrNoResponders, nats.ErrDisconnected,
		nats.ErrConnectionReconnecting, nats.ErrReconnectBufExceeded,
		jetstream.ErrNoStreamResponse, jetstream.ErrStreamNotFound, jetstream.ErrConsumerNotFound,
	}, func(temporary error) bool { return errors.Is(err, temporary) })
}
