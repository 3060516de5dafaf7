package replay

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	// patience is how long one request waits for a broker that is away: longer
	// than a server takes to restart, or a stream to find a new leader.
	patience = time.Minute
	// answerTimeout bounds one try.
	answerTimeout = 5 * time.Second
	// againFirst and againMax bound the pauses between tries.
	againFirst = 100 * time.Millisecond
	againMax   = 2 * time.Second
)

// Insist makes a request until the broker answers, or patience ends. A publish
// whose answer was lost may have been taken, so do must be safe to repeat.
func Insist(ctx context.Context, do func(context.Context) error) error {
	began := time.Now()
	for pause := againFirst; ; pause = min(2*pause, againMax) {
		err := try(ctx, do)
		if !away(err) || ctx.Err() != nil || time.Since(began) > patience {
			return err
		}
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return context.Cause(ctx)
		case <-timer.C:
		}
	}
}

func try(ctx context.Context, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	return do(ctx)
}

// away tells whether the broker, or the leader of a stream, is not there now.
// That the streams exist was seen before, so one that is not found is on its
// way.
func away(err error) bool {
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
