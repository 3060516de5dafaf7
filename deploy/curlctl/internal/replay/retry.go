package replay

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	// retryFor is how long one request is tried while the broker is unavailable: longer
	// than a server takes to restart, or a stream to find a new leader, and longer than
	// a minute without a broker, after which the connection takes some seconds.
	retryFor = 2 * time.Minute
	// answerTimeout bounds one try.
	answerTimeout = 5 * time.Second
)

// Retry makes a request until the broker answers, or retryFor has passed. A publish
// whose answer was lost may have been taken, so do must be safe to repeat.
func Retry(ctx context.Context, do func(context.Context) error) error {
	began := time.Now()
	for pause := 100 * time.Millisecond; ; pause = min(2*pause, 2*time.Second) {
		err := try(ctx, do)
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

func try(ctx context.Context, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	return do(ctx)
}

// unavailable reports whether the broker, or the leader of a stream, is not there now.
// That the streams exist was seen before, so one that is not found is on its
// way.
func unavailable(err error) bool {
	if api, ok := errors.AsType[*jetstream.APIError](err); ok {
		return api.Code == 503 || api.ErrorCode == jetstream.JSErrCodeStreamNotFound || api.ErrorCode == jetstream.JSErrCodeConsumerNotFound
	}
	for _, passing := range []error{
		context.DeadlineExceeded, nats.ErrTimeout, nats.ErrNoResponders, nats.ErrDisconnected,
		nats.ErrConnectionReconnecting, nats.ErrReconnectBufExceeded,
		jetstream.ErrNoStreamResponse, jetstream.ErrStreamNotFound, jetstream.ErrConsumerNotFound,
	} {
		if errors.Is(err, passing) {
			return true
		}
	}
	return false
}
