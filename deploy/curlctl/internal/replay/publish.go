package replay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/kv8s/curl-me-that/deploy/curlctl/broker"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/keys"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

// Publish requests the fetch of each wanted item, and sets its verdict. Progress, if set, is called with the
// number of requests. The limit is that of requests per second (0: no limit).
func Publish(
	ctx context.Context, client *broker.Client, items []*Item, limit rate.Limit, progress func(int),
) error {
	limiter, begun := rate.NewLimiter(cmp.Or(limit, rate.Inf), 1), time.Now().UnixNano()
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(concurrency)
	var done atomic.Int64
	for _, item := range items {
		if item.Verdict != StillWanted {
			continue
		}
		if err := limiter.Wait(ctx); err != nil {
			group.Go(func() error { return context.Cause(ctx) }) // Wait must return it, even if nothing runs
			break
		}
		group.Go(func() error {
			err := request(ctx, client, item, cmp.Or(item.Begun, begun))
			if err == nil && progress != nil {
				progress(int(done.Add(1)))
			}
			return err
		})
	}
	return group.Wait()
}

// request requests the fetch of an item, again while NATS is unavailable.
func request(ctx context.Context, client *broker.Client, item *Item, begun int64) error {
	ctx, cancel := context.WithTimeout(ctx, retryFor)
	defer cancel()
	verdict, tries := StillWanted, 0
	err := poll(ctx, func(ctx context.Context) (_ bool, err error) {
		verdict, err = publish(ctx, client, item, begun)
		tries++
		return true, err
	})
	if verdict == Already && tries > 1 {
		verdict = Replayed // by an earlier try whose acknowledgement was lost
	}
	if err == nil {
		item.Verdict = verdict
	}
	return err
}

// retryFor is how long one request is retried while NATS is unavailable. Server restarts, leader elections and
// reconnects take less.
const retryFor = 2 * time.Minute

// supersededTries is the maximum number of tries if the want keeps changing.
const supersededTries = 3

// publish publishes a due for the item.
func publish(ctx context.Context, client *broker.Client, item *Item, begun int64) (Verdict, error) {
	for range supersededTries {
		want, verdict, err := current(ctx, client, item)
		if err != nil || verdict != StillWanted {
			return verdict, err
		}
		want.Want.Status, want.Want.Cached = "", nil
		due := &v1.Due{Want: want.Want, WantSequence: want.Sequence}
		if err := inherit(ctx, client, item.Key, due); err != nil {
			return StillWanted, err
		}
		var id string
		if item.ID > 0 {
			due.Cause, due.ReplayOf = v1.Cause_CAUSE_REPLAY, item.ID
			id = fmt.Sprintf("replay.%d.%d.%d", want.Want.GetEpoch(), item.ID, want.Sequence)
		} else {
			due.Cause = v1.Cause_CAUSE_NOW
			id = fmt.Sprintf("refetch.%d.%d", begun, want.Sequence)
		}
		duplicate, err := client.PublishDue(ctx, due, id)
		switch {
		case errors.Is(err, pipeline.ErrSuperseded):
		case duplicate:
			return Already, err
		default:
			return Replayed, err
		}
	}
	return Changed, nil
}

// inherit copies the failure state from the pending timer of the key, so that an old failure is not reported
// as new. It does not copy the known body: every response goes to the writer, which compares it with the value.
func inherit(ctx context.Context, client *broker.Client, key pipeline.Key, due *v1.Due) error {
	timer, err := client.PendingTimer(ctx, key)
	switch {
	case errors.Is(err, pipeline.ErrNoMessage), errors.Is(err, pipeline.ErrMalformed):
		return nil // nothing is known
	case err != nil:
		return err
	case timer.Due.GetWantSequence() != due.GetWantSequence(): // the timer belongs to an earlier want
		return nil
	}
	due.Reported, due.Withheld = timer.Due.GetReported(), timer.Due.GetWithheld()
	due.Detail = timer.Due.GetDetail()
	due.StatusCode, due.FirstFailedAt = timer.Due.GetStatusCode(), timer.Due.GetFirstFailedAt()
	return nil
}

// current reads the want of a key and compares it with the failed request.
func current(ctx context.Context, client *broker.Client, item *Item) (broker.StoredWant, Verdict, error) {
	want, err := client.Wanted(ctx, item.Key)
	switch {
	case errors.Is(err, pipeline.ErrMalformed):
		return want, Changed, nil
	case err != nil && item.ID > 0:
		return want, StillWanted, fmt.Errorf("check failure %d: %w", item.ID, err)
	case err != nil:
		return want, StillWanted, err
	case want.Sequence == 0:
		return want, Gone, nil
	case item.ID > 0 && keys.RequestOf(want.Want) != item.request:
		return want, Changed, nil
	}
	return want, StillWanted, nil
}

// concurrency is the maximum number of concurrent requests.
const concurrency = 16

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
