package replay

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/kv8s/curl-me-that/deploy/curlctl/operate"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

// Request requests the fetch of each wanted item, and sets its verdict. Progress, if set, is called with the
// number of requests.
func Request(ctx context.Context, client *operate.Client, items []*Item, r Rate, progress func(int)) error {
	limiter, begun := r.limiter(), time.Now().UnixNano()
	return each(ctx, items, isWanted, progress, func(ctx context.Context, item *Item) error {
		if err := limiter.Wait(ctx); err != nil {
			return context.Cause(ctx)
		}
		verdict, tries := Wanted, 0
		err := Retry(ctx, func(ctx context.Context) (err error) {
			verdict, err = publish(ctx, client, item, begun)
			tries++
			return err
		})
		if verdict == Already && tries > 1 {
			verdict = Replayed // by an earlier try whose acknowledgement was lost
		}
		if err == nil {
			item.Verdict, item.End.Outcome = verdict, Pending
		}
		return err
	})
}

// supersededTries is the maximum number of tries if the want keeps changing.
const supersededTries = 3

// publish publishes a due for the item.
func publish(ctx context.Context, client *operate.Client, item *Item, begun int64) (Verdict, error) {
	for range supersededTries {
		want, verdict, err := current(ctx, client, item)
		if err != nil || verdict != Wanted {
			return verdict, err
		}
		want.Want.Status, want.Want.Cached = "", nil
		due := &v1.Due{Want: want.Want, WantSequence: want.Sequence}
		if err := inherit(ctx, client, item.Key, due); err != nil {
			return Wanted, err
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
func inherit(ctx context.Context, client *operate.Client, key pipeline.Key, due *v1.Due) error {
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

// Refetch requests the fetch of wanted keys, and returns the number of requests.
func Refetch(
	ctx context.Context, client *operate.Client, keys []pipeline.Key, r Rate, progress func(int),
) (requested int, err error) {
	var items []*Item
	for _, key := range keys {
		items = append(items, &Item{Key: key, Verdict: Wanted})
	}
	err = Request(ctx, client, items, r, progress)
	counts := Count(items)
	return counts[Replayed] + counts[Already], err
}

const (
	// retryFor is how long one request is retried while NATS is unavailable. Server restarts, leader elections
	// and reconnects take less.
	retryFor = 2 * time.Minute
	// tryTimeout limits each try.
	tryTimeout = 5 * time.Second
)

// Retry repeats do until NATS responds, or retryFor has passed. Since an acknowledgement may get lost, do must
// be idempotent.
func Retry(ctx context.Context, do func(context.Context) error) error {
	began := time.Now()
	return repeat(ctx, func() (bool, error) {
		limited, cancel := context.WithTimeout(ctx, tryTimeout)
		defer cancel()
		err := do(limited)
		if unavailable(err) && time.Since(began) <= retryFor {
			return false, nil
		}
		return true, err
	})
}

// The pause between two tries grows from pauseFirst to pauseMax.
const (
	pauseFirst = 100 * time.Millisecond
	pauseMax   = 2 * time.Second
)

// repeat calls do until it is done or fails, or ctx ends.
func repeat(ctx context.Context, do func() (done bool, err error)) error {
	pause := wait.Backoff{Duration: pauseFirst, Factor: 2, Cap: pauseMax, Steps: math.MaxInt}.DelayFunc()
	err := pause.Until(ctx, true, true, func(context.Context) (bool, error) { return do() })
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
