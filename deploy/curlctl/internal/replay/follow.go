package replay

import (
	"context"
	"errors"

	"github.com/kv8s/curl-me-that/deploy/curlctl/operate"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

// Follower follows the outcome of replays by reading the streams.
type Follower struct {
	client *operate.Client
	// last is the last sequence in Failures before the first replay.
	last uint64
}

// Follow returns a follower. Call it before Publish.
func Follow(ctx context.Context, client *operate.Client) (*Follower, error) {
	failures, err := client.Stream(ctx, pipeline.Failures)
	if err != nil {
		return nil, err
	}
	return &Follower{client: client, last: failures.CachedInfo().State.LastSeq}, nil
}

// Wait returns when the outcome of every replayed item is known, or ctx ends. Progress is called after each check with
// the number of the others.
func (f *Follower) Wait(ctx context.Context, items []*Item, progress func(pending int)) error {
	return poll(ctx, func(ctx context.Context) (bool, error) {
		err := f.check(ctx, items)
		pending := Pending(items)
		progress(pending)
		return pending == 0, err
	})
}

// Pending returns the number of replayed items without a known outcome.
func Pending(items []*Item) int {
	counts := Verdicts(items)
	return counts[Replayed] + counts[Already]
}

// check updates the verdict of all pending items.
func (f *Follower) check(ctx context.Context, items []*Item) error {
	handled, err := f.client.Handled(ctx)
	if err != nil {
		return err
	}
	pending := func(item *Item) bool { return item.Verdict == Replayed || item.Verdict == Already }
	return each(ctx, items, pending, nil, func(ctx context.Context, item *Item) error {
		return f.update(ctx, item, handled)
	})
}

// update reads the outcome of one item. The fetchers have handled all requests up to the sequence handled.
func (f *Follower) update(ctx context.Context, item *Item, handled uint64) error {
	_, verdict, err := current(ctx, f.client, item)
	if err != nil {
		return err
	}
	if verdict != Wanted {
		item.Verdict = Superseded
		return nil
	}
	// Read the timer first: if it fires meanwhile, the due exists already.
	timer, err := f.client.PendingTimer(ctx, item.Key)
	if err != nil && !errors.Is(err, pipeline.ErrNoMessage) {
		return err
	}
	due, err := f.client.LastDue(ctx, item.Key)
	retries := timer.Due != nil && timer.Due.GetCause() != v1.Cause_CAUSE_REFRESH &&
		timer.Due.GetCause() != v1.Cause_CAUSE_RECHECK
	switch {
	case errors.Is(err, pipeline.ErrNoMessage), err == nil && (due > handled || retries):
		return nil
	case err != nil:
		return err
	}
	// There are no further attempts, so it was fetched unless there is a new failure.
	filter := operate.DeadLetterFilter{Namespace: item.Key.Namespace, Name: item.Key.Name, Key: item.Key.Key}
	outcome := Fetched
	for failure, err := range f.client.DeadLetters(ctx, filter) {
		if err != nil {
			return err
		}
		if failure.ID > f.last {
			outcome, item.NewFailure = FailedAgain, &failure
		}
		break
	}
	item.Verdict = outcome
	return nil
}

// Written waits until the writer has handled all results so far. It returns false if ctx ends before.
func (f *Follower) Written(ctx context.Context) (written bool, err error) {
	last := uint64(0)
	err = poll(ctx, func(ctx context.Context) (bool, error) {
		stream, err := f.client.Stream(ctx, pipeline.Results)
		if err != nil {
			return false, err
		}
		if last == 0 {
			last = stream.CachedInfo().State.LastSeq
		}
		info, err := operate.Consumer(ctx, stream, pipeline.WriterConsumer)
		if err == nil {
			written = info.NumPending == 0 && info.NumAckPending == 0 || info.AckFloor.Stream >= last
		}
		return written, err
	})
	if ctx.Err() != nil { // the user ended it
		err = nil
	}
	return written, err
}
