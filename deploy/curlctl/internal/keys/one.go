package keys

import (
	"context"
	"errors"

	"github.com/kv8s/curl-me-that/deploy/curlctl/operate"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

// One reads one key from the streams; nil: it is not wanted. The fetchers have handled all requests up
// to the sequence handled.
func (r Reader) One(ctx context.Context, key pipeline.Key, handled uint64) (*Key, error) {
	want, sequence, err := r.Client.LastWant(ctx, key)
	switch {
	case errors.Is(err, pipeline.ErrNoMessage), err == nil && want == nil:
		return nil, nil //nolint:nilnil // it is not wanted
	case errors.Is(err, pipeline.ErrMalformed):
		return &Key{Key: key}, nil
	case err != nil:
		return nil, err
	}
	wanted := operate.Want{Key: key, Sequence: sequence, Want: want}
	timer, err := r.Client.PendingTimer(ctx, key)
	switch {
	case err == nil:
		found := r.key(wanted, pending{timer: &timer}, handled)
		return &found, nil
	case !errors.Is(err, pipeline.ErrNoMessage) && !errors.Is(err, pipeline.ErrMalformed):
		return nil, err
	}
	if due, err := r.Client.LastDue(ctx, key); err == nil && due > handled {
		handled = 0 // a request waits
	}
	found := r.key(wanted, pending{}, handled)
	return &found, nil
}

// Handled returns the sequence up to which the fetchers have handled all requests; 0: there is no
// consumer.
func (r Reader) Handled(ctx context.Context) (uint64, error) {
	fetchers, err := r.Client.Fetchers(ctx)
	switch {
	case errors.Is(err, operate.ErrNoConsumer):
		return 0, nil
	case err != nil:
		return 0, err
	}
	return fetchers.AckFloor.Stream, nil
}

// The present states of the key of a failure, next to those of package condition.
const (
	Recovered = "recovered"
	Changed   = "changed"
	Gone      = "gone"
)

// Now returns the present state of a key whose request has failed. A nil key is not wanted.
func Now(failed Request, k *Key) string {
	switch {
	case k == nil:
		return Gone
	case failed != k.Request:
		return Changed
	case k.Condition.Good():
		return Recovered
	}
	return string(k.Condition.State)
}
