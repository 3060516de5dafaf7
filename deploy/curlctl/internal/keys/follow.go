package keys

import (
	"context"
	"errors"

	"github.com/kv8s/curl-me-that/deploy/curlctl/operate"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

// Outcome of a replay.
type Outcome string

// The outcomes.
const (
	// Fetched: the body was fetched and handed to the writer.
	Fetched Outcome = "fetched"
	// FailedAgain: all attempts failed; there is a new failure.
	FailedAgain Outcome = "failed again"
	// Superseded: the want has been changed or removed.
	Superseded Outcome = "changed meanwhile"
	// Pending: the outcome is not known yet.
	Pending Outcome = "pending"
)

// End is the end of one replay.
type End struct {
	Outcome Outcome
	// Failure is the new failure if it failed again.
	Failure *operate.DeadLetter
}

// Follower follows the outcome of replays by reading the streams.
type Follower struct {
	client *operate.Client
	// last is the last sequence in Failures before the first replay.
	last uint64
}

// Follow returns a follower. Call it before Replay.
func Follow(ctx context.Context, client *operate.Client) (*Follower, error) {
	failures, err := client.JetStream().Stream(ctx, pipeline.Failures)
	if err != nil {
		return nil, err
	}
	return &Follower{client: client, last: failures.CachedInfo().State.LastSeq}, nil
}

// Wait returns when the outcome of every replayed item is known, or ctx ends. Progress is called after each check.
func (f *Follower) Wait(ctx context.Context, items []*Item, progress func(map[Outcome]int)) error {
	return repeat(ctx, func() (bool, error) {
		err := f.check(ctx, items)
		counts := Outcomes(items)
		progress(counts)
		return counts[Pending] == 0, err
	})
}

// Outcomes counts followed items by outcome.
func Outcomes(items []*Item) map[Outcome]int {
	counts := map[Outcome]int{}
	for _, item := range items {
		if item.Followed() {
			counts[item.End.Outcome]++
		}
	}
	return counts
}

// Followed reports whether the item will have an outcome.
func (i *Item) Followed() bool { return i.Verdict == Replayed || i.Verdict == Already }

// check updates the outcome of all pending items.
func (f *Follower) check(ctx context.Context, items []*Item) error {
	var handled uint64
	err := Retry(ctx, func(ctx context.Context) error {
		fetchers, err := f.client.Fetchers(ctx)
		if err == nil {
			handled = fetchers.AckFloor.Stream
		}
		return err
	})
	if err != nil {
		return err
	}
	pending := func(item *Item) bool { return item.Followed() && item.End.Outcome == Pending }
	return each(ctx, items, pending, nil, func(ctx context.Context, item *Item) error {
		return Retry(ctx, func(ctx context.Context) error {
			end, err := f.endOf(ctx, item, handled)
			if err == nil {
				item.End = end
			}
			return err
		})
	})
}

// endOf reads the outcome of one item. The fetchers have handled all requests up to the sequence handled.
func (f *Follower) endOf(ctx context.Context, item *Item, handled uint64) (End, error) {
	_, verdict, err := current(ctx, f.client, item)
	if err != nil || verdict != Wanted {
		return End{Outcome: Superseded}, err
	}
	// Read the timer first: if it fires meanwhile, the due exists already.
	timer, err := f.client.PendingTimer(ctx, item.Key)
	if err != nil && !errors.Is(err, pipeline.ErrNoMessage) {
		return End{}, err
	}
	due, err := f.client.LastDue(ctx, item.Key)
	switch {
	case errors.Is(err, pipeline.ErrNoMessage), err == nil && due > handled:
		return End{Outcome: Pending}, nil
	case err != nil:
		return End{}, err
	case timer.Due == nil:
		return f.final(ctx, item)
	}
	switch timer.Due.GetCause() {
	case v1.Cause_CAUSE_REFRESH, v1.Cause_CAUSE_RECHECK:
		return f.final(ctx, item)
	default: // a retry is scheduled
		return End{Outcome: Pending}, nil
	}
}

// final returns the outcome of an item without further attempts: it was fetched unless there is a new failure.
func (f *Follower) final(ctx context.Context, item *Item) (End, error) {
	filter := operate.DeadLetterFilter{Namespace: item.Key.Namespace, Name: item.Key.Name, Key: item.Key.Key}
	for failure, err := range f.client.DeadLetters(ctx, filter) {
		if err != nil {
			return End{}, err
		}
		if failure.ID > f.last {
			return End{Outcome: FailedAgain, Failure: &failure}, nil
		}
		break
	}
	return End{Outcome: Fetched}, nil
}

// Written waits until the writer has handled all results so far. It returns false if ctx ends before.
func (f *Follower) Written(ctx context.Context) (written bool, err error) {
	last := uint64(0)
	err = repeat(ctx, func() (bool, error) {
		err := Retry(ctx, func(ctx context.Context) error {
			stream, err := f.client.JetStream().Stream(ctx, pipeline.Results)
			if err != nil {
				return err
			}
			if last == 0 {
				last = stream.CachedInfo().State.LastSeq
			}
			info, err := operate.Consumer(ctx, stream, pipeline.WriterConsumer)
			if err == nil {
				written = info.NumPending == 0 && info.NumAckPending == 0 || info.AckFloor.Stream >= last
			}
			return err
		})
		return written, err
	})
	if ctx.Err() != nil { // the user ended it
		err = nil
	}
	return written, err
}
