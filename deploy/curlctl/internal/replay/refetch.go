package replay

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kv8s/curl-me-that/deploy/curlctl/operate"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

// Refetch requests the fetch of wanted keys, and returns their number. It passes on the
// known body of a key, so that the fetch may be conditional.
func Refetch(
	ctx context.Context, client *operate.Client, keys []pipeline.Key, r Rate, progress func(int),
) (requested int, err error) {
	limiter := r.limiter()
	begun := time.Now().UnixNano()
	for _, key := range keys {
		if err := limiter.Wait(ctx); err != nil {
			return requested, context.Cause(ctx)
		}
		wanted := false
		err := Retry(ctx, func(ctx context.Context) (err error) {
			wanted, err = refetch(ctx, client, key, begun)
			return err
		})
		if err != nil {
			return requested, err
		}
		if wanted {
			requested++
			progress(requested)
		}
	}
	return requested, nil
}

func refetch(ctx context.Context, client *operate.Client, key pipeline.Key, begun int64) (wanted bool, err error) {
	for range supersededTries {
		want, sequence, err := client.LastWant(ctx, key)
		if errors.Is(err, pipeline.ErrNoMessage) || errors.Is(err, pipeline.ErrMalformed) || err == nil && want == nil {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		due := newDue(want, sequence, v1.Cause_CAUSE_NOW)
		if due.Cached, err = inherit(ctx, client, key, due); err != nil {
			return false, err
		}
		_, err = client.PublishDue(ctx, due, fmt.Sprintf("refetch.%d.%d", begun, sequence))
		if !errors.Is(err, pipeline.ErrSuperseded) { // a newer want is fetched anyway
			return err == nil, err
		}
	}
	return false, nil
}
