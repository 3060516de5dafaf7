package replay

import (
	"context"
	"errors"
	"fmt"
	"time"

	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/pipeline/operate"
)

// Refetch asks for the fetch of what is wanted, and returns for how many. What
// body a key holds is handed on, so that the fetch may be conditional.
func Refetch(ctx context.Context, client *operate.Client, wants []operate.Want, pace Pace, progress func(int)) (int, error) {
	limiter := pace.limiter()
	begun := time.Now().UnixNano()
	done := 0
	for _, w := range wants {
		if err := limiter.Wait(ctx); err != nil {
			return done, context.Cause(ctx)
		}
		asked := false
		err := Retry(ctx, func(ctx context.Context) (err error) {
			asked, err = refetch(ctx, client, w.Key, begun)
			return err
		})
		if err != nil {
			return done, err
		}
		if asked {
			done++
			progress(done)
		}
	}
	return done, nil
}

func refetch(ctx context.Context, client *operate.Client, key pipeline.Key, begun int64) (bool, error) {
	for range 3 {
		want, sequence, err := client.LastWant(ctx, key)
		if errors.Is(err, pipeline.ErrNoMessage) || errors.Is(err, pipeline.ErrMalformed) || err == nil && want == nil {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		due := newDue(want, sequence, v1.Cause_CAUSE_NOW)
		timer, err := inherit(ctx, client, key, due)
		if err != nil {
			return false, err
		}
		due.Settled = timer.cached
		_, err = client.PublishDue(ctx, due, fmt.Sprintf("refetch.%d.%d", begun, sequence))
		if !errors.Is(err, pipeline.ErrSuperseded) { // a newer want is fetched anyway
			return err == nil, err
		}
	}
	return false, nil
}
