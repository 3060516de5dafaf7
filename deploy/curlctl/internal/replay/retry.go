package replay

import (
	"context"
	"errors"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/util/wait"
)

// concurrency is the maximum number of concurrent reads or publishes.
const concurrency = 16

// each calls do concurrently for selected items. Progress, if set, is called with the number of done items.
func each(
	ctx context.Context, items []*Item, selected func(*Item) bool, progress func(int),
	do func(context.Context, *Item) error,
) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(concurrency)
	var done atomic.Int64
	for _, item := range items {
		if !selected(item) {
			continue
		}
		if ctx.Err() != nil {
			group.Go(func() error { return context.Cause(ctx) }) // Wait must return it, even if nothing runs
			break
		}
		group.Go(func() error {
			if err := do(ctx, item); err != nil {
				return err
			}
			if n := done.Add(1); progress != nil {
				progress(int(n))
			}
			return nil
		})
	}
	return group.Wait()
}

// The pause between two tries grows from pauseFirst to pauseMax, and tryTimeout limits each try.
const (
	pauseFirst = 100 * time.Millisecond
	pauseMax   = 2 * time.Second
	tryTimeout = 5 * time.Second
)

// poll calls do until it is done or fails, or ctx ends. It goes on while NATS is unavailable. Since an acknowledgement
// may get lost, do must be idempotent.
func poll(ctx context.Context, do func(context.Context) (done bool, err error)) error {
	pause := wait.Backoff{Duration: pauseFirst, Factor: 2, Cap: pauseMax, Steps: math.MaxInt}.DelayFunc()
	err := pause.Until(ctx, true, true, func(ctx context.Context) (bool, error) {
		limited, cancel := context.WithTimeout(ctx, tryTimeout)
		defer cancel()
		done, err := do(limited)
		if unavailable(err) {
			return false, nil
		}
		return done, err
	})
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// unavailable reports whether a server or the leader of a stream is unavailable. A stream that is not found
// counts: it existed before, so the server is still recovering it.
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
